"""`horolog job patch`: change a part of a job."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .asking import CommandId, IfMatch, Note, Wait, answer, send
from .frame import NOT_FOUND, USAGE, Failure, Format, JobId, Output, Tenant, command

if TYPE_CHECKING:
    from horolog.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Make `patch` a command of `app`."""
    command(app, "patch")(patch)


def patch(
    settings: "Settings",
    job: JobId,
    changes: Annotated[
        str | None,
        typer.Argument(metavar="JSON", help='As \'{"name": "New"}\'; null removes a field.'),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="A file with it; - is standard input.", metavar="FILE"),
    ] = None,
    note: Note = "",
    if_match: IfMatch = None,
    command_id: CommandId = "",
    tenant: Tenant = None,
    wait: Wait = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """Change a part of a job: JSON merge patch over its definition.

    What is not named stays as it is, and so do the ticks of schedules that are not named. A change
    by somebody else in between is not overwritten: it is patched as well.
    """
    from api.patch import BadPatch, patched
    from processors.exchange import JsonPut
    from schemas.limits import PATCH_TRIES_MAX
    from schemas.replies import Refused

    from .reading import read_jobs

    wanted, owner = _changes(changes, file), tenant or settings.tenant
    for tries_left in range(PATCH_TRIES_MAX - 1, -1, -1):
        view = read_jobs(settings, owner, job).job(owner, job)
        if view is None:
            raise Failure(f"there is no job {owner}/{job}", kind="not_found", code=NOT_FOUND,
                          hint=f"`horolog job list --tenant {owner}` lists the jobs")  # fmt: skip
        try:
            definition = patched(view, wanted)
        except BadPatch as bad:
            raise Failure(str(bad), kind="usage", code=USAGE, hint=bad.problem.hint) from bad
        asked = JsonPut(
            tenant=owner, job=job, definition=definition, note=note, command_id=command_id,
            if_match=view.state.version if if_match is None else if_match,
        )  # fmt: skip
        told = send(settings, asked, wait)
        overtaken = isinstance(told, Refused) and told.kind == "version_conflict"
        if not (overtaken and if_match is None and tries_left):
            answer(told, output, "patched")
            return


def _changes(changes: str | None, file: str | None) -> dict[str, Any]:
    import msgspec

    if (changes is None) == (file is None):
        raise Failure("one patch is needed", kind="usage", code=USAGE,
                      hint="as an argument such as '{\"name\": \"New\"}', or --file")  # fmt: skip
    if file is not None:
        from .definition import from_file

        return from_file(file)
    assert changes is not None
    try:
        found = msgspec.json.decode(changes)
    except msgspec.DecodeError as error:
        raise Failure(f"the patch is no JSON: {error}", kind="usage", code=USAGE) from error
    if not isinstance(found, dict):
        raise Failure("the patch is no JSON object", kind="usage", code=USAGE)
    return found
