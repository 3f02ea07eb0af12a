"""One scheduler as a process."""

from horolog import processor_process
from horolog.settings import Settings
from processors import service


def run(settings: Settings, bootstrap: str, *, member: str | None) -> None:
    """Run a scheduler until it is told to stop, as `processor_process.run` says."""
    processor_process.run("scheduler", service.build, settings, bootstrap, member=member)
