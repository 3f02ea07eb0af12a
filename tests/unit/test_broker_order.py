"""Which Kafka runs where none was named."""

import pytest

from horolog.broker.errors import ToolMissing
from horolog.broker.order import Kind, choose

NO_JAVA, NO_DOCKER = "No java anywhere.", "Docker does not answer."


@pytest.mark.parametrize("no_docker", ["", NO_DOCKER])
def test_where_there_is_a_java_docker_does_not_matter(no_docker: str) -> None:
    assert choose(kept=None, no_java="", no_docker=no_docker) is Kind.EMBEDDED


def test_docker_is_used_only_where_there_is_no_java() -> None:
    assert choose(kept=None, no_java=NO_JAVA, no_docker="") is Kind.CONTAINER


def test_without_either_one_message_names_both() -> None:
    with pytest.raises(ToolMissing, match=f"{NO_JAVA} {NO_DOCKER}"):
        choose(kept=None, no_java=NO_JAVA, no_docker=NO_DOCKER)


@pytest.mark.parametrize("no_java", ["", NO_JAVA])
def test_data_that_is_in_docker_stays_there(no_java: str) -> None:
    assert choose(kept=Kind.CONTAINER, no_java=no_java, no_docker="") is Kind.CONTAINER
    with pytest.raises(ToolMissing, match=f"kept in Docker. {NO_DOCKER}"):
        choose(kept=Kind.CONTAINER, no_java=no_java, no_docker=NO_DOCKER)


@pytest.mark.parametrize("no_docker", ["", NO_DOCKER])
def test_data_of_the_embedded_kafka_is_never_left_for_an_empty_one(no_docker: str) -> None:
    assert choose(kept=Kind.EMBEDDED, no_java="", no_docker=no_docker) is Kind.EMBEDDED
    with pytest.raises(ToolMissing, match=f"^{NO_JAVA}$"):
        choose(kept=Kind.EMBEDDED, no_java=NO_JAVA, no_docker=no_docker)
