"""The Python functions of the demonstration, as a user would write them.

`horolog worker horolog.demo.handlers:app` runs them.
"""

import time
import urllib.request
from http import HTTPStatus

from horolog import App, Context, Fail

ANSWER_S = 5.0

app = App()


@app.task("report")
def report(ctx: Context, url: str, hold_ms: int = 0) -> dict[str, int]:
    """Report this run to `url`, then take some time over nothing."""
    request = urllib.request.Request(  # noqa: S310 the demonstration's own receiver
        url,
        method="POST",
        data=b"{}",
        headers={
            "ce-id": ctx.execution_id,
            "ce-subject": f"{ctx.tenant}/{ctx.job}",
            "X-Deduplication-Key": ctx.occurrence,
            "X-Horolog-Scheduled-At": ctx.scheduled_at.isoformat(timespec="milliseconds"),
            "X-Horolog-Delivery": str(ctx.delivery),
            "X-Horolog-Fence": str(ctx.fence),
        },
    )
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
        if answer.status != HTTPStatus.OK:
            raise Fail(f"the receiver answered {answer.status}")
    time.sleep(hold_ms / 1_000)
    return {"delivery": ctx.delivery}
