"""When HTTP jobs may call anything: only where nobody else can register them."""

import os
from pathlib import Path

import pytest

from horolog.installation import Installation, is_loopback
from horolog.settings import load


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("HOROLOG_") or name == "KAFKA_BOOTSTRAP_SERVERS":
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("bootstrap", "ours"),
    [
        ("127.0.0.1:9092", True), ("localhost:9092", True), ("[::1]:9092", True),
        ("127.0.0.1:1,127.0.0.9:2", True), ("10.0.0.1:9092", False), ("kafka:9092", False),
        ("127.0.0.1:1,kafka:2", False), ("0.0.0.0:9092", False), ("", False),
    ],
)  # fmt: skip
def test_a_kafka_is_ours_alone_if_all_its_addresses_are_this_machines(
    bootstrap: str, ours: bool
) -> None:
    assert is_loopback(bootstrap) is ours


@pytest.mark.parametrize(("bootstrap", "permissive"), [("127.0.0.1:1", True), ("k:1", False)])
def test_only_on_a_kafka_of_ours_alone_may_http_jobs_call_anything(
    bootstrap: str, permissive: bool
) -> None:
    settings = load({"kafka": {"bootstrap": bootstrap}})
    assert Installation(settings, lambda _: None).permissive is permissive


def test_who_has_set_what_may_be_called_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROLOG_HTTP__ALLOWED_CIDRS", "10.0.0.0/8")
    settings = load({"kafka": {"bootstrap": "127.0.0.1:1"}})
    assert not Installation(settings, lambda _: None).permissive
