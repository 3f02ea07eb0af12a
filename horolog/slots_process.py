"""One slots processor as a process."""

from horolog import processor_process
from horolog.settings import Settings
from processors import service


def run(settings: Settings, bootstrap: str, *, member: str | None) -> None:
    """Run a slots processor until it is told to stop, as `processor_process.run` says. It may have
    the name of a scheduler: their groups and folders are apart."""
    processor_process.run(
        "slots", service.build_slots, settings, bootstrap, member=member, folder="slots"
    )
