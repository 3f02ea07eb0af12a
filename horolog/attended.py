"""Runs the command line for as long as somebody attends it.

`python -m horolog.attended run scheduler …` is `horolog run scheduler …`, told to stop by SIGTERM
when its standard input ends: the end of the pipe is the end of whoever started it, however that
came about.
"""

import os
import signal
import threading


def main() -> None:
    """Watch standard input beside the command."""
    threading.Thread(target=_end_with_stdin, name="attended", daemon=True).start()
    from horolog.cli import main as command

    command()


def _end_with_stdin() -> None:
    while os.read(0, 4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
