"""Which Horolog a program means, without the server's settings."""

from pathlib import Path

import pytest

from horolog.sdk_settings import Unsettled, find


def test_given_comes_before_the_environment_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "horolog.toml"
    file.write_text(
        'namespace = "file"\ntenant = "file"\nlease_ms = 3000\n[kafka]\nbootstrap = "file:1"\n'
        '[kafka.client]\n"security.protocol" = "SSL"\n'
    )
    env = {
        "HOROLOG_CONFIG": str(file), "HOROLOG_NAMESPACE": "env", "KAFKA_BOOTSTRAP_SERVERS": "env:1",
    }  # fmt: skip
    where = find(bootstrap="given:1", env=env)
    assert (where.bootstrap, where.namespace, where.tenant) == ("given:1", "env", "file")
    assert where.client == {"security.protocol": "SSL"}
    assert where.lease_ms == 3_000
    assert find(env=env).bootstrap == "env:1"


def test_credentials_are_not_shown() -> None:
    where = find(env={"HOROLOG_KAFKA__CLIENT": '{"sasl.password": "secret"}'})
    assert where.client["sasl.password"] == "secret"
    assert "secret" not in repr(where)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("namespace = ")
    for env in (
        {"HOROLOG_CONFIG": str(tmp_path / "none.toml")}, {"HOROLOG_CONFIG": str(broken)},
        {"HOROLOG_KAFKA__CLIENT": "{"}, {"HOROLOG_LEASE_MS": "soon"},
    ):  # fmt: skip
        with pytest.raises(Unsettled):
            find(env=env)
