"""Which source a setting came from, when several have something to say."""

import os
from pathlib import Path

import pytest

from horolog.origins import DEFAULT, MASK, explain
from horolog.settings import load


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("HOROLOG_") or name == "KAFKA_BOOTSTRAP_SERVERS":
            monkeypatch.delenv(name)


def origins(**flags: object) -> dict[str, str]:
    return {one.name: one.origin for one in explain(load(flags))}


def test_the_source_that_wins_is_the_one_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert origins()["namespace"] == DEFAULT
    Path("horolog.toml").write_text('namespace = "file"\n[kafka]\nbootstrap = "file:1"')
    assert origins()["namespace"] == "file: horolog.toml"
    monkeypatch.setenv("horolog_namespace", "env")
    assert origins()["namespace"] == "environment: horolog_namespace"
    assert origins(namespace="flag")["namespace"] == "flag"


def test_kafkas_own_variable_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROLOG_KAFKA__BOOTSTRAP", "ours:1")
    assert origins()["kafka.bootstrap"] == "environment: HOROLOG_KAFKA__BOOTSTRAP"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "theirs:1")
    assert origins()["kafka.bootstrap"] == "environment: KAFKA_BOOTSTRAP_SERVERS"


def test_each_client_setting_has_its_own_origin_and_none_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("horolog.toml").write_text('[kafka.client]\n"linger.ms" = 5\n"sasl.username" = "u"')
    monkeypatch.setenv("HOROLOG_KAFKA__CLIENT", '{"sasl.password": "s3cret"}')
    monkeypatch.setenv("HOROLOG_KAFKA", '{"client": {"ssl.key.password": "s3cret"}}')
    found = {one.name: one for one in explain(load())}
    assert {name.removeprefix("kafka.client."): one.origin for name, one in found.items()
            if name.startswith("kafka.client.")} == {
        "linger.ms": "file: horolog.toml", "sasl.username": "file: horolog.toml",
        "sasl.password": "environment: HOROLOG_KAFKA__CLIENT",
        "ssl.key.password": "environment: HOROLOG_KAFKA",
    }  # fmt: skip
    assert {one.value for name, one in found.items() if ".client." in name} == {MASK}
