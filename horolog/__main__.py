"""`python -m horolog` is the command `horolog`."""

from horolog.cli import main

main()
