"""Gathers what the SDK ships: the modules that users import, and those that they need.

Within the project these lie in top-level packages (`schemas`, `streams`, `workers` …). Names as
general as those have no place in a user's environment, so each becomes `horolog._<name>` and the
import statements are rewritten. Needs the standard library only: it runs while a wheel is built.
"""

import ast
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

ROOTS = ("horolog", "horolog.app", "horolog.sdk_client", "horolog.sdk_command",
         "horolog.worker_process", "workers.child")  # fmt: skip
MOVED = ("schemas", "streams", "processors", "projections", "workers")
DATA = ("schemas/ids.lock.json", "schemas/avro")
_IMPORT = re.compile(rf"^(\s*)(from|import) ({'|'.join(MOVED)})(?=[\s.])", re.MULTILINE)


def collect(project: Path, target: Path) -> list[str]:
    """Write the SDK's package `horolog` into `target`, which is emptied; the modules it has, by
    their names in the project."""
    shutil.rmtree(target, ignore_errors=True)
    modules = needed(project, ROOTS)
    for name in sorted(modules):
        source = _file_of(project, name)
        assert source is not None
        place = target / _moved(source.relative_to(project))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(rewritten(source.read_text("utf-8")), "utf-8")
    for data in DATA:
        source, place = project / data, target / _moved(Path(data))
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copyfile(source, place)
    (target / "py.typed").touch()
    return sorted(modules)


def needed(project: Path, roots: Iterable[str]) -> set[str]:
    """Every module of the project that the roots import, directly or not, with its packages."""
    found: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        source = _file_of(project, name)
        if source is None:
            continue
        found.add(name)
        package = name if source.name == "__init__.py" else name.rpartition(".")[0]
        todo += _packages_of(name)
        todo += _imported(ast.parse(source.read_text("utf-8")), package)
    return found


def rewritten(text: str) -> str:
    """The source with the imports of moved packages under their new names."""
    return _IMPORT.sub(r"\1\2 horolog._\3", text)


def _moved(path: Path) -> Path:
    """Where a file lies in the SDK's package."""
    first, *rest = path.parts
    return Path(*rest) if first == "horolog" else Path(f"_{first}", *rest)


def _file_of(project: Path, name: str) -> Path | None:
    base = project.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _packages_of(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _imported(tree: ast.AST, package: str) -> Iterable[str]:
    """Names that may be modules of ours: those that are none have no file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                module = ".".join([*above, *filter(None, [module])])
            # The server's command is used where it is installed, and never shipped.
            if _ours(module) and not f"{module}.".startswith("horolog.cli."):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)


def _ours(name: str) -> bool:
    return name.partition(".")[0] in (*MOVED, "horolog")
