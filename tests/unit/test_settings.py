"""Where settings come from, and what is said about wrong ones."""

from pathlib import Path

import pytest

from horolog.settings import BadSettings, load


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file and no variable of whoever runs the tests."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("HOROLOG_") or name == "KAFKA_BOOTSTRAP_SERVERS":
            monkeypatch.delenv(name)


def write(text: str, name: str = "horolog.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def problems_of(**load_arguments: object) -> dict[str, tuple[str, str]]:
    with pytest.raises(BadSettings) as caught:
        load(**load_arguments)  # type: ignore[arg-type]
    return {p.field: (p.message, p.hint) for p in caught.value.problems}


def test_without_anything_the_defaults_are_used() -> None:
    settings = load()
    assert (settings.namespace, settings.partitions, settings.tenant) == ("horolog", 12, "default")
    assert (settings.data_dir, settings.kafka.bootstrap) == (Path(".horolog"), "")
    assert settings.config_file is None


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write('namespace = "file"\ntenant = "file"\npartitions = 3')
    monkeypatch.setenv("HOROLOG_NAMESPACE", "env")
    monkeypatch.setenv("HOROLOG_TENANT", "env")
    settings = load({"namespace": "flag", "data_dir": None})
    assert (settings.namespace, settings.tenant, settings.partitions) == ("flag", "env", 3)
    assert settings.data_dir == Path(".horolog")


def test_kafka_bootstrap_servers_comes_before_our_own_variable_but_after_a_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOROLOG_KAFKA__BOOTSTRAP", "ours:1")
    assert load().kafka.bootstrap == "ours:1"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "theirs:1")
    assert load().kafka.bootstrap == "theirs:1"
    assert load({"kafka": {"bootstrap": "flag:1"}}).kafka.bootstrap == "flag:1"


def test_parts_of_a_table_come_from_several_places(monkeypatch: pytest.MonkeyPatch) -> None:
    write('[kafka]\nbootstrap = "file:1"\n[kafka.client]\n"linger.ms" = 5\n"sasl.username" = "u"')
    monkeypatch.setenv("HOROLOG_KAFKA__CLIENT", '{"sasl.password": "s3cret"}')
    kafka = load().kafka
    assert kafka.bootstrap == "file:1"
    assert kafka.client == {"linger.ms": 5, "sasl.username": "u", "sasl.password": "s3cret"}


def test_the_file_that_is_named_is_read_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    write('namespace = "unnamed"')
    other = write('namespace = "named"', "other.toml")
    assert load(config=other).namespace == "named"
    monkeypatch.setenv("HOROLOG_CONFIG", "other.toml")
    settings = load()
    assert (settings.namespace, settings.config_file) == ("named", Path("other.toml"))


def test_a_file_that_is_named_must_be_there_and_be_toml() -> None:
    assert problems_of(config=Path("nowhere.toml"))["nowhere.toml"][0].startswith("cannot be read")
    assert problems_of(config=write("a = ", "bad.toml"))["bad.toml"][0].startswith("is no TOML")


def test_all_wrong_settings_are_named_with_their_origin_and_what_was_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write('namespcae = "x"\npartitions = 0\n[kafka]\nbootstrapp = "x"')
    monkeypatch.setenv("HOROLOG_DATADIR", "x")
    monkeypatch.setenv("HOROLOG_NAMESPACE", "no spaces")
    found = problems_of()
    assert found["namespcae"] == ("is no setting (in horolog.toml)", "did you mean namespace?")
    assert found["kafka.bootstrapp"][1] == "did you mean kafka.bootstrap?"
    assert found["HOROLOG_DATADIR"] == ("is no setting", "did you mean HOROLOG_DATA_DIR?")
    assert "greater than or equal to 1 (in horolog.toml)" in found["partitions"][0]
    assert "(environment: HOROLOG_NAMESPACE)" in found["namespace"][0]
    assert len(found) == 5


@pytest.mark.parametrize("text", ["10.0.0.0/8, ::1/128", '["10.0.0.0/8", "::1/128"]'])
def test_networks_are_a_list_in_json_or_with_commas(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HOROLOG_HTTP__ALLOWED_CIDRS", text)
    monkeypatch.setenv("HOROLOG_HTTP__ALLOW_PLAIN_HTTP", "true")
    http = load().http
    assert (http.allowed_cidrs, http.allow_plain_http) == (("10.0.0.0/8", "::1/128"), True)


def test_nothing_private_is_allowed_unless_it_is_named() -> None:
    http = load().http
    assert (http.allowed_cidrs, http.allow_plain_http) == ((), False)


@pytest.mark.parametrize("text", ["10.0.0.0/99", "everything", "[1"])
def test_what_is_no_network_is_refused_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HOROLOG_HTTP__ALLOWED_CIDRS", text)
    ((message, _),) = problems_of().values()
    assert "(environment: HOROLOG_HTTP__ALLOWED_CIDRS)" in message


def test_a_lease_is_a_minute_unless_set_and_neither_too_short_nor_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert load().lease_ms == 60_000
    write("lease_ms = 2000")
    assert load().lease_ms == 2_000
    for wrong in ("1999", "600001"):
        monkeypatch.setenv("HOROLOG_LEASE_MS", wrong)
        assert "lease_ms" in problems_of()


def test_variables_that_belong_to_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROLOG_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOROLOG_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("HOROLOG_JAVA", "/usr/bin/java")
    monkeypatch.setenv("HOROLOG_CRASH", "CP07")
    assert load().namespace == "horolog"


def test_client_settings_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    write('[kafka.client]\n"sasl.password" = "s3cret"')
    settings = load()
    assert settings.kafka.client["sasl.password"] == "s3cret"
    shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert "s3cret" not in shown

    write('partitions = "s3cret"\n[kafka.client]\nsasl.password = "s3cret"')
    with pytest.raises(BadSettings) as caught:
        load()
    told = f"{caught.value} {caught.value.problems}"
    assert "s3cret" not in told
    assert 'write the whole name in quotes: "queue.buffering.max.ms" = 5' in told


def test_the_address_stands_in_one_place_only() -> None:
    write('[kafka.client]\n"bootstrap.servers" = "x:1"')
    assert "kafka.bootstrap" in problems_of()["kafka.client"][0]
