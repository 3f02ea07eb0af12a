"""What the Dockerfile and docker-compose.yml say, without running it."""

import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import pytest
import yaml

from horolog.broker.settings import Ports, server_settings
from horolog.settings import load
from tests.deployment import composed, dockerfile

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "run-with-compose.md"
SERVICES = composed.services()
OURS = {name: one for name, one in SERVICES.items() if one["image"] == composed.OURS}
ONE_SHOT = {"topics"}
each_service = pytest.mark.parametrize("name", SERVICES)
each_of_ours = pytest.mark.parametrize("name", OURS)


def test_the_dockerfile_satisfies_hadolint() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is installed on Linux on x86_64 only")
    done = subprocess.run(
        [hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_images_are_pinned_to_a_release() -> None:
    stages = dockerfile.read()
    images = [stage.image for stage in stages] + [one["image"] for one in SERVICES.values()]
    for image in set(images) - {composed.OURS}:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+(-[a-z-]+)?", image), image
    assert len({stage.image for stage in stages}) == 1, "the environment is moved between stages"


def test_the_image_has_a_python_that_horolog_supports() -> None:
    found = re.match(r"python:(\d+)\.(\d+)\.", dockerfile.read()[0].image)
    assert found is not None
    assert (int(found[1]), int(found[2])) >= (3, 11)


def test_the_image_runs_as_nobody_in_particular_and_builds_nothing() -> None:
    *_, final = dockerfile.read()
    (user,) = final.all("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user.rest)
    after_user = final.instructions[final.instructions.index(user) :]
    assert not [one for one in after_user if one.word in ("RUN", "COPY")]
    for one in final.all("RUN"):
        assert not re.search(r"\b(apt|apt-get|pip|uv|gcc|make|curl)\b", one.rest), one.rest
    assert not final.all("HEALTHCHECK"), "what is asked differs from service to service"


def test_the_image_is_made_with_the_uv_that_the_makefile_names() -> None:
    named = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named is not None
    assert dockerfile.read()[0].environment["UV_VERSION"] == named[1]


def test_every_package_reaches_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"]}
    needed |= {*project["project"]["license-files"], "pyproject.toml", "uv.lock"}
    copied = {
        source.rstrip("/")
        for one in dockerfile.read()[0].all("COPY")
        for source in one.words[:-1]
    }  # fmt: skip
    assert copied == needed
    ignore = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {line[1:] for line in ignore if line.startswith("!")} == needed


def test_compose_has_every_service_that_horolog_runs() -> None:
    from horolog.cli.app import app

    (group,) = [one for one in app.registered_groups if one.name == "run"]
    assert group.typer_instance is not None
    kinds = {one.name for one in group.typer_instance.registered_commands}
    assert {one["command"][1] for one in OURS.values() if one["command"][0] == "run"} == kinds


@each_service
def test_only_this_machine_reaches_what_is_published(name: str) -> None:
    service = SERVICES[name]
    assert "network_mode" not in service
    for port in service.get("ports", []):
        assert isinstance(port, str)
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


def test_who_is_published() -> None:
    assert {name for name, one in SERVICES.items() if "ports" in one} == {"kafka", "gateway"}


@each_service
def test_a_service_is_asked_how_it_is_or_ends_by_itself(name: str) -> None:
    service = SERVICES[name]
    if name in ONE_SHOT:
        assert service["restart"] == "no"
        assert "healthcheck" not in service
        return
    assert service["restart"] == "unless-stopped"
    check = service["healthcheck"]
    assert check["test"][0] == "CMD"
    assert composed.seconds(check["timeout"]) < composed.seconds(check["interval"])
    assert composed.seconds(service["stop_grace_period"]) >= 20


@each_of_ours
def test_a_service_of_ours_has_no_more_rights_than_it_needs(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True, "the first process of a container ignores SIGTERM by default"
    assert not service.keys() & {"user", "privileged", "entrypoint"}


@each_of_ours
def test_a_service_of_ours_waits_for_kafka_and_for_the_topics(name: str) -> None:
    expected = {"kafka": {"condition": "service_healthy"}}
    if name != "topics":
        expected["topics"] = {"condition": "service_completed_successfully"}
    assert OURS[name]["depends_on"] == expected


@each_of_ours
def test_a_process_keeps_its_name_when_its_container_is_made_anew(name: str) -> None:
    command = OURS[name]["command"]
    if name not in (*ONE_SHOT, "gateway"):
        assert command[-2] in ("--member", "--name")


def test_every_volume_is_declared_and_used_by_one_service() -> None:
    used = [
        volume.partition(":")[0]
        for one in SERVICES.values()
        for volume in one.get("volumes", [])
        if not volume.startswith(".")
    ]
    assert sorted(used) == sorted(composed.read()["volumes"])


def test_the_how_to_names_every_variable_and_its_default() -> None:
    found = composed.VARIABLE.findall(composed.FILE.read_text("utf-8"))
    told = re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert set(found) == set(told)
    assert not [name for name, _ in found if name.startswith("HOROLOG_")], "those are settings"


def test_the_overrides_of_the_how_to_fit_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(overrides) == 2
    for text in overrides:
        override = yaml.safe_load(text)
        for name, service in override["services"].items():
            base = service.get("extends", {}).get("service", name)
            assert base in SERVICES
            for variable, value in service.get("environment", {}).items():
                assert isinstance(value, str)
                monkeypatch.setenv(variable, value)
            for volume in service.get("volumes", []):
                assert volume.partition(":")[0] in override["volumes"]
    settings = load()
    assert settings.http.allow_plain_http
    assert settings.http.allowed_cidrs == ("172.16.0.0/12",)


def test_kafka_is_the_release_that_the_embedded_one_is() -> None:
    pom = Xml.parse(ROOT / "deploy" / "broker" / "pom.xml").getroot()
    name = "{http://maven.apache.org/POM/4.0.0}"
    versions = {
        str(one.findtext(f"{name}artifactId")): one.findtext(f"{name}version")
        for one in pom.iter(f"{name}dependency")
    }
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{versions['kafka_2.13']}"


def test_kafka_is_set_as_the_embedded_one_is_but_for_its_addresses() -> None:
    written: dict[str, Any] = composed.kafka_properties(SERVICES["kafka"]["environment"])
    embedded = dict(server_settings(Path("/var/lib/kafka/data"), Ports(broker=1, controller=9093)))
    addresses = {"listeners", "advertised.listeners", "listener.security.protocol.map"}
    assert {k: v for k, v in written.items() if k not in addresses} == {
        k: v for k, v in embedded.items() if k not in addresses
    }
    assert all(isinstance(value, str) for value in written.values()), "YAML reads other types"


def test_kafka_is_asked_at_an_address_that_it_tells_others() -> None:
    kafka = SERVICES["kafka"]
    *command, asked = kafka["healthcheck"]["test"]
    assert command == ["CMD", "/opt/kafka/bin/kafka-broker-api-versions.sh", "--bootstrap-server"]
    told = kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"BROKER://{asked}" in told
    (published,) = kafka["ports"]
    host, port, inside = published.split(":")
    assert f"HOST://{host}:{port}" in told
    assert f"HOST://0.0.0.0:{inside}" in kafka["environment"]["KAFKA_LISTENERS"].split(",")
    for one in OURS.values():
        assert one["environment"]["KAFKA_BOOTSTRAP_SERVERS"] == asked
