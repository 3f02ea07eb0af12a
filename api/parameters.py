"""Parameters that routes have in common: each is checked before the route runs, and all that are
wrong are told at once."""

import re
from typing import Annotated, Final

from fastapi import Header, Query
from pydantic import AfterValidator

from projections.executions import TERMINAL, WAITING
from projections.live_jobs import Seen
from schemas import limits

from .gateway import SEQUENCE

JOB_STATES: Final = ("ACTIVE", "PAUSED", "FINISHED", "BROKEN")
EXECUTION_STATES: Final = (*WAITING, *TERMINAL)
BY: Final = "rest"
WAIT_S: Final = limits.ANSWER_WAIT_S_DEFAULT
SEEN_S: Final = 5.0
_VERSION: Final = re.compile(r'"?(\d{1,18})"?')
_SEEN: Final = re.compile(r"(\d{1,18})\.(\d{1,18})")


def version_of(if_match: str | None, if_none_match: str | None = None) -> int | None:
    """The version that a valid If-Match names; 0 for `If-None-Match: *`."""
    if if_none_match is not None:
        return 0
    match = _VERSION.fullmatch(if_match.strip()) if if_match is not None else None
    return int(match[1]) if match is not None else None


def seen_of(min_seq: str | None) -> Seen | None:
    """Life and sequence that a valid `min_seq` names."""
    match = _SEEN.fullmatch(min_seq) if min_seq is not None else None
    return (int(match[1]), int(match[2])) if match is not None else None


def command_id_of(key: str | None) -> str:
    """The command id that an Idempotency-Key names: as written, or what stands in the quotes."""
    if key is None:
        return ""
    return key[1:-1] if len(key) > 2 and key[0] == key[-1] == '"' else key


def _is_version(text: str | None) -> str | None:
    if text is not None and _VERSION.fullmatch(text.strip()) is None:
        raise ValueError(f'{text[:40]!r} is no version; such as "3"')
    return text


def _is_star(text: str | None) -> str | None:
    if text is not None and text.strip() != "*":
        raise ValueError(f"{text[:40]!r} is not understood; only * is")
    return text


def _is_seen(text: str | None) -> str | None:
    if text is not None and _SEEN.fullmatch(text) is None:
        raise ValueError(
            f"{text[:40]!r} is no life and sequence; as the header {SEQUENCE} of a write's answer "
            "has it, such as 17.3"
        )
    return text


def _is_key(text: str | None) -> str | None:
    if text is not None and len(text) > limits.COMMAND_ID_CHARS_MAX + 2:
        raise ValueError(f"{len(text)} characters; at most {limits.COMMAND_ID_CHARS_MAX}")
    return text


def _one_of(states: tuple[str, ...]) -> AfterValidator:
    def check(text: str | None) -> str | None:
        if text is not None and text.upper() not in states:
            raise ValueError(f"{text[:40]!r} is no state; one of {', '.join(states)}")
        return text.upper() if text is not None else None

    return AfterValidator(check)


Note = Annotated[str, Query(description="Why; kept with the change.")]
By = Annotated[str, Header(alias="Horolog-By", description="Who asks; kept with the change.")]
Key = Annotated[
    str | None, AfterValidator(_is_key),
    Header(description="The command id: it takes effect once within an hour."),
]  # fmt: skip
IfMatch = Annotated[
    str | None, AfterValidator(_is_version),
    Header(description='Only if the job is at this version, such as "3".'),
]  # fmt: skip
IfNoneMatch = Annotated[
    str | None, AfterValidator(_is_star),
    Header(description="`*`: only if the job does not exist."),
]  # fmt: skip
Wait = Annotated[
    float,
    Query(ge=0, le=limits.ANSWER_WAIT_S_MAX,
          description="Seconds to wait for the scheduler's answer before 202."),
]  # fmt: skip
MinSeq = Annotated[
    str | None, AfterValidator(_is_seen),
    Query(description=f"Wait until this is seen: `{SEQUENCE}` of a write's answer."),
]  # fmt: skip
ReadWait = Annotated[
    float,
    Query(alias="wait", ge=0, le=limits.READ_WAIT_S_MAX,
          description="Seconds to wait for `min_seq`."),
]  # fmt: skip
Limit = Annotated[int, Query(ge=1, le=limits.PAGE_ITEMS_MAX, description="At most so many.")]
Cursor = Annotated[str | None, Query(description="`next` of the page before.")]
JobState = Annotated[
    str | None, _one_of(JOB_STATES), Query(description="Only those in this state.")
]
ExecutionState = Annotated[
    str | None, _one_of(EXECUTION_STATES), Query(description="Only those in this state.")
]
Sought = Annotated[
    str, Query(max_length=limits.NAME_CHARS_MAX,
               description="Only those with this in their id or name."),
]  # fmt: skip
