"""The headers by which a receiver knows what a call is about, and what an answer means."""

from typing import Final

from multidict import CIMultiDict

from schemas.leases import WorkItem
from schemas.units import format_instant

USER_AGENT: Final = "Horolog"
EVENT_TYPE: Final = "io.horolog.execution.due.v1"
RESERVED: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
     "trailer", "expect", "proxy-authorization", "proxy-connection"}
)  # fmt: skip
"""Headers that say where a request goes and where it ends: never a user's."""
RETRYABLE: Final = frozenset({408, 425, 429})
NOT_IMPLEMENTED: Final = 501


def headers_of(item: WorkItem, source: str, now_ms: int) -> CIMultiDict[str]:
    """What is sent: the user's headers, over which the identity always wins."""
    assert item.http is not None
    headers = CIMultiDict(item.http.headers)
    if item.payload:
        headers.setdefault("Content-Type", item.content_type)
    headers.setdefault("User-Agent", USER_AGENT)
    # An answer is kept as it comes, and 4 KiB of it: compressed it would be of no use.
    headers["Accept-Encoding"] = "identity"
    headers["Idempotency-Key"] = item.execution_id
    headers["X-Deduplication-Key"] = item.occurrence
    headers["X-Horolog-Attempt"] = str(item.attempt)
    headers["X-Horolog-Delivery"] = str(item.delivery)
    headers["X-Horolog-Scheduled-At"] = format_instant(item.scheduled_at)
    headers["X-Horolog-Fence"] = str(item.fence)
    if item.previous_outcome:
        headers["X-Horolog-Previous-Outcome"] = item.previous_outcome
    # CloudEvents 1.0, binary mode; job ids need no quoting.
    headers["ce-specversion"] = "1.0"
    headers["ce-id"] = item.execution_id
    headers["ce-source"] = source
    headers["ce-type"] = EVENT_TYPE
    headers["ce-subject"] = f"{item.tenant}/{item.job}"
    headers["ce-time"] = format_instant(now_ms)
    return headers


def may_retry(status: int) -> bool:
    """Whether an answer with this status may be another one next time."""
    return status in RETRYABLE or (500 <= status <= 599 and status != NOT_IMPLEMENTED)
