from pathlib import Path

import pytest

from horolog.broker.errors import BrokerError, ToolMissing
from horolog.broker.jars import find_jars, find_pom
from horolog.broker.java import Java

JAVA = Java(binary=Path("/java/bin/java"), home=Path("/java"), version=17, build="17+1")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_maven(folder: Path, script: str) -> dict[str, str]:
    """An environment whose `mvn` runs this script, and writes down each run."""
    folder.mkdir()
    program = folder / "mvn"
    program.write_text(f'#!/bin/sh\necho "$JAVA_HOME" >> "{folder}/runs"\n{script}\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


TWO_JARS = "mkdir jars && touch jars/b.jar jars/a.jar"


def test_jars_are_fetched_once(tmp_path: Path, cache: Path) -> None:
    env = make_maven(tmp_path / "bin", TWO_JARS)
    told: list[str] = []
    first = find_jars(JAVA, env, told.append)
    assert [jar.name for jar in first] == ["a.jar", "b.jar"]
    assert "fetching Kafka" in told[0]
    told.clear()
    assert find_jars(JAVA, env, told.append) == first
    assert told == []
    # Maven ran with the Java that was found, not with one of its own choice.
    assert lines(tmp_path / "bin" / "runs") == ["/java"]


def test_a_cache_that_lost_a_jar_is_fetched_again(tmp_path: Path, cache: Path) -> None:
    env = make_maven(tmp_path / "bin", TWO_JARS)
    find_jars(JAVA, env, print)[0].unlink()
    assert all(jar.is_file() for jar in find_jars(JAVA, env, print))
    assert len(lines(tmp_path / "bin" / "runs")) == 2


def test_a_failing_maven_is_quoted_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    env = make_maven(tmp_path / "bin", "mkdir jars; touch jars/a.jar; echo no route; exit 1")
    with pytest.raises(BrokerError, match="no route"):
        find_jars(JAVA, env, print)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_without_maven_the_message_says_what_to_install(cache: Path) -> None:
    with pytest.raises(ToolMissing, match=r"apt install maven.*KAFKA_BOOTSTRAP_SERVERS"):
        find_jars(JAVA, {"PATH": ""}, print)


def test_the_pom_names_the_checked_kafka() -> None:
    assert "<version>4.2.2</version>" in find_pom().read_text()
