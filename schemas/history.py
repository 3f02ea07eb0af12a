"""Every version of every schema that was ever in use, one file each: `history/<Name>.<id>.avsc`.

`python -m schemas.history record` adds the current ones; a release does this. What is there is
never changed: records of that version lie on somebody's topics.
"""

import json
import sys
from pathlib import Path
from typing import Final, NamedTuple

from .registry import AvroSchema, lock, registered

FOLDER: Final = Path(__file__).resolve().parent / "history"


class Recorded(NamedTuple):
    """One version of a schema, self-contained."""

    name: str
    id: int
    schema: AvroSchema


class Rewritten(Exception):
    """A schema is not what was recorded under its id. Give it a new id in `ids.lock.json`."""

    def __init__(self, name: str, schema_id: int) -> None:
        super().__init__(
            f"{name} has changed under its id {schema_id}, and records of that id are in use: "
            "give it a new id in ids.lock.json"
        )


def recorded(folder: Path = FOLDER) -> list[Recorded]:
    """Everything that was recorded, by name and id."""
    found = []
    for path in folder.glob("*.avsc"):
        name, _, number = path.stem.rpartition(".")
        found.append(Recorded(name, int(number), json.loads(path.read_text("utf-8"))))
    return sorted(found, key=lambda one: (one.name, one.id))


def current() -> list[Recorded]:
    """The schemas as they are now, by name."""
    return [Recorded(name, *registered(name)) for name in sorted(lock())]


def record(folder: Path = FOLDER) -> list[Path]:
    """Add the current schemas that are not recorded yet; the files that were made. Raises
    `Rewritten`, before it makes any, if a recorded one has changed."""
    known = {(one.name, one.id): one.schema for one in recorded(folder)}
    missing = []
    for one in current():
        before = known.get((one.name, one.id))
        if before is None:
            missing.append(one)
        elif before != one.schema:
            raise Rewritten(one.name, one.id)
    folder.mkdir(exist_ok=True)
    made = []
    for one in missing:
        path = folder / f"{one.name}.{one.id}.avsc"
        path.write_text(json.dumps(one.schema, indent=1) + "\n", "utf-8")
        made.append(path)
    return made


def main(arguments: list[str]) -> int:
    """`record` and nothing else."""
    if arguments != ["record"]:
        sys.stderr.write("usage: python -m schemas.history record\n")
        return 2
    try:
        made = record()
    except Rewritten as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for path in made:
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
