"""Which Kafka runs where the user named none: the embedded one, else one in Docker."""

from enum import StrEnum

from .errors import ToolMissing


class Kind(StrEnum):
    """What a Kafka of Horolog's own runs in; its data cannot move from one to the other."""

    EMBEDDED = "embedded"
    CONTAINER = "container"


def choose(*, kept: Kind | None, no_java: str, no_docker: str) -> Kind:
    """Embedded where there is a Java, else in Docker; where data is kept already, where it is.

    `kept` says in which the folder's data is, if any. The two reasons are empty for what can be
    used. Raises `ToolMissing` with everything that is missing.
    """
    if kept is Kind.CONTAINER and no_docker:
        raise ToolMissing(f"The Kafka of this data folder is kept in Docker. {no_docker}")
    if kept is Kind.EMBEDDED and no_java:
        raise ToolMissing(no_java)
    if kept is not None:
        return kept
    if not no_java:
        return Kind.EMBEDDED
    if not no_docker:
        return Kind.CONTAINER
    raise ToolMissing(f"{no_java} {no_docker}")
