"""Answers to commands: names, versions and problems, never payloads."""

import msgspec


class Problem(msgspec.Struct, frozen=True, gc=False):
    """One thing that is wrong: the field's path, what is wrong, what would be right."""

    field: str
    message: str
    hint: str = ""


class Accepted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The command took effect, now or before under the same id (`repeated`)."""

    command_id: str
    tenant: str
    job: str
    life: int
    version: int
    sequence: int
    execution_id: str = ""
    repeated: bool = False
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The command took no effect at all; `kind` is stable, `problems` names every wrong field."""

    command_id: str
    tenant: str
    job: str
    kind: str
    message: str
    problems: tuple[Problem, ...] = ()
