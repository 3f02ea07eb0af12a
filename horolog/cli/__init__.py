"""The command `horolog`."""

import sys


def main() -> None:
    """Run the command line of this process and end with its exit code."""
    if not __debug__:
        sys.stderr.write("error: Horolog's own checks are assertions\nhint: leave out python -O\n")
        sys.exit(1)
    from .app import app

    app(prog_name="horolog")
