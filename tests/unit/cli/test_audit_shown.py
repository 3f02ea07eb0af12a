"""How `horolog audit` tells what it found."""

from pathlib import Path

import pytest

from horolog.cli.audit import _write
from projections.audit.finding import SHOWN_MAX, Tally, Violation
from tests.unit.cli.test_commands import run


def test_the_table_has_every_check_and_violations_stand_below_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = Tally()
    tally.count("I2", 30)
    tally.add(Violation("I2", f"executions-0@{n}", "a/b was claimed before") for n in range(25))
    tally.leave_out("changes whose commands are not retained", 3)
    _write(tally.report(partitions=2, records=100, transactions=50, receipts=0))
    out, err = capsys.readouterr()
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert rows["I17"].split()[1:3] == ["not", "checkable"]
    assert "nothing to check" in rows["I1"]
    assert "I2 violated by executions-0@0: a/b was claimed before\n" in out
    assert f"executions-0@{SHOWN_MAX}" not in out
    assert "I2 violated by 5 more\n" in out
    assert "not judged: 3 changes whose commands are not retained\n" in err
    assert err.endswith("50 transactions and 100 records in 2 partitions, 0 receipts: violated\n")


def test_a_file_that_cannot_be_read_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    receipts = tmp_path / "r.jsonl"
    receipts.write_text('{"execution_id": 1}\n')
    done = run("audit", "--bootstrap", "127.0.0.1:1", "--receipts", str(receipts))
    assert done.exit_code == 2
    assert f"{receipts}:1: execution_id is 1" in done.stderr
