"""What only a store on a disk can meet: a process that is killed, and bytes that rot."""

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streams.errors import Corrupt
from streams.rocks import RocksStore, RocksStores

BATCHES = 12
PAIRS = 1_000

WRITER = """
import itertools, sys
from pathlib import Path
from streams.rocks import RocksStores

store = RocksStores(Path(sys.argv[1]), cache_bytes=1_048_576).open(0)
for number in itertools.count():
    batch = {b"k%05d" % n: b"%d " % number * 20 for n in range(500)}
    batch[b"n%07d" % number] = b""
    batch[b"!mark"] = b"%d" % number
    store.apply(batch)
    print(number, flush=True)
"""


def stores_in(folder: Path) -> RocksStores:
    return RocksStores(folder, cache_bytes=1_048_576)


@pytest.mark.parametrize("batches", [1, 7, 40])
def test_a_killed_process_leaves_whole_batches_and_all_that_were_applied(
    tmp_path: Path, batches: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(batches):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            if line.endswith("\n"):
                acknowledged = int(line)
    store = stores_in(tmp_path).open(0)
    mark = int(store.get(b"!mark") or -1)
    assert acknowledged <= mark <= acknowledged + 1
    assert {value for _, value in store.scan(b"k", b"l", 1_000)} == {b"%d " % mark * 20}
    assert len(store.scan(b"n", b"o", 10_000_000)) == mark + 1
    store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of a few files, whose mark says how many batches it has."""
    folder = tmp_path_factory.mktemp("filled")
    chance = random.Random(1)
    store = stores_in(folder).open(0)
    for number in range(BATCHES):
        batch = {b"k%02d-%04d" % (number, n): chance.randbytes(500) for n in range(PAIRS)}
        store.apply({**batch, b"!mark": b"%d" % number})
    store.close()
    return folder / "0"


def whole_batches(store: RocksStore) -> int:
    """Read everything; how many batches there are."""
    pairs = store.scan(b"k", b"l", BATCHES * PAIRS + 1)
    found = store.get_many([key for key, _ in pairs])
    assert found == [value for _, value in pairs]
    mark = store.get(b"!mark")
    batches = 0 if mark is None else int(mark) + 1
    assert [key for key, _ in pairs] == [
        b"k%02d-%04d" % (number, n) for number in range(batches) for n in range(PAIRS)
    ]
    return batches


def test_the_store_for_the_damage_tests_has_several_files(filled: Path) -> None:
    assert len(list(filled.glob("*.sst"))) >= 1
    assert whole_batches(stores_in(filled.parent).open(0)) == BATCHES


@pytest.mark.parametrize("harm", ["flip", "cut", "zero", "remove"])
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT", "OPTIONS-*", "IDENTITY"])
def test_a_damaged_store_says_so_or_has_whole_batches(
    filled: Path, tmp_path: Path, pattern: str, harm: str
) -> None:
    chance = random.Random(f"{pattern}{harm}")
    for number, name in enumerate(sorted(path.name for path in filled.glob(pattern))):
        folder = tmp_path / str(number)
        shutil.copytree(filled, folder / "0")
        damage(folder / "0" / name, harm, chance)
        stores = stores_in(folder)
        store = None
        try:
            store = stores.open(0)
            assert whole_batches(store) <= BATCHES
        except Corrupt:
            pass
        if store is not None:
            store.close()
        stores.wipe(0)
        fresh = stores.open(0)
        assert fresh.scan(b"", b"\xff", 10) == []
        fresh.apply({b"a": b"1"})
        assert fresh.get(b"a") == b"1"
        fresh.close()


def test_damage_within_a_table_is_never_taken_for_its_end(filled: Path, tmp_path: Path) -> None:
    for table in filled.glob("*.sst"):
        shutil.copytree(filled, tmp_path / table.name / "0")
        path = tmp_path / table.name / "0" / table.name
        content = bytearray(path.read_bytes())
        # Among the data blocks, which come first.
        content[len(content) // 3] ^= 0xFF
        path.write_bytes(content)
        store = stores_in(tmp_path / table.name).open(0)
        with pytest.raises(Corrupt):
            store.scan(b"k", b"l", BATCHES * PAIRS + 1)
        store.close()


def test_a_wipe_that_was_killed_half_way_is_finished_by_the_next_open(tmp_path: Path) -> None:
    left = tmp_path / "0.discarded"
    left.mkdir()
    (left / "000001.sst").write_bytes(b"half")
    store = stores_in(tmp_path).open(0)
    assert not left.exists()
    store.close()


def damage(path: Path, harm: str, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
        return
    if harm == "cut":
        content = content[: chance.randrange(len(content))]
    elif harm == "zero":
        first = chance.randrange(len(content))
        content[first : first + 4_096] = bytes(len(content[first : first + 4_096]))
    else:
        for _ in range(3):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
