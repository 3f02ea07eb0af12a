"""Stops a broker when the process that started it has died, by whatever cause.

Run as `python -m horolog.broker.guard DATA_DIR PID DESCRIPTOR`. The descriptor is the reading end
of a pipe whose other end only the starter holds: the end of the pipe is the end of the starter.
"""

import select
import sys
from pathlib import Path

from .process import read_pid, stop

CHECK_S = 1.0


def main(data_dir: Path, pid: int, descriptor: int) -> None:
    """Return once this broker is gone, at the latest after stopping it."""
    # The folder may have got another broker meanwhile, which is not ours to stop.
    while read_pid(data_dir) == pid:
        ended, _, _ = select.select([descriptor], [], [], CHECK_S)
        if ended:
            stop(data_dir)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
