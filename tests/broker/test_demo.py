"""The demonstration as a newcomer runs it: with a broker, a folder and processes of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def test_demo_check_kills_scheduler_and_workers_once_and_finds_nothing_wrong(
    tmp_path: Path,
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOROLOG_")}
    done = subprocess.run(
        [sys.executable, "-m", "horolog", "demo", "--check"],
        env=environment | {"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=175,
        check=False,
    )
    sys.stderr.write(done.stderr)
    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert report["findings"] == []
    assert (report["ok"], done.returncode) == (True, 0)
    # A service that dies by itself is a fault, although it is started again.
    assert (report["kills"], report["restarts"]) == (3, 3)
    assert report["fires"] >= 400
    assert min(report["calls"], report["runs"]) >= 200
    # Whatever was received more than once had lost a lease and said so.
    seen = report["fires"] + report["calls"] + report["runs"] + report["redelivered"]
    assert seen <= report["receipts"] <= seen + report["held"]
    # Every process has ended and nothing stays behind.
    assert list(tmp_path.iterdir()) == []
    assert not list(Path(tempfile.gettempdir()).glob("horolog-demo-*/broker/broker.pid"))
