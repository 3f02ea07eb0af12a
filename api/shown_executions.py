"""Executions as they are shown, closed and open ones."""

import base64
from typing import Any

import msgspec

from projections.executions import Execution, Timeline
from schemas.state import OpenExecution
from schemas.units import format_instant


def execution_row(execution: Execution) -> dict[str, Any]:
    """An execution, or a run of missed ticks, as a line of a list."""
    return {
        "tenant": execution.tenant,
        "job": execution.job,
        "scheduled_at": instant(execution.scheduled_at),
        "last_scheduled_at": instant(execution.last_scheduled_at),
        "count": execution.count,
        "exact": execution.exact,
        "state": execution.state,
        "reason": execution.reason,
        "detail": execution.detail,
        "due_at": instant(execution.due_at),
        "claimed_at": instant(execution.claimed_at),
        "execution_id": execution.execution_id,
        "attempt": execution.attempt,
        "version": execution.version,
        "topic": execution.topic,
        "partition": execution.partition,
        "pool": execution.pool,
        "handler": execution.handler,
        "delivery": execution.delivery,
        "lost": execution.lost,
        "worker": execution.worker,
        "lease_until": instant(execution.lease_until) if execution.state == "RUNNING" else None,
        "started_at": instant(execution.started_at),
        "finished_at": instant(execution.finished_at),
    }


def execution_document(timeline: Timeline) -> dict[str, Any]:
    """Everything that is known of an execution, with its events."""
    row = timeline.row
    assert row is not None
    events = [
        {
            "at": instant(event.at),
            "state": event.state,
            "reason": event.reason,
            "detail": event.detail,
            "attempt": event.attempt,
            "delivery": event.delivery,
            "lost": event.lost,
            "worker": event.worker,
            "lease_until": instant(event.lease_until),
            "sequence": event.sequence,
        }
        for event in timeline.events
    ]
    return execution_row(row) | result_form(row.result) | {"events": events}


def result_form(result: bytes) -> dict[str, Any]:
    """What came back: JSON where it is, else text, else base64."""
    if not result:
        return {"result": None}
    try:
        return {"result": msgspec.json.decode(result)}
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return {"result_text": result.decode()}
    except UnicodeDecodeError:
        return {"result_base64": base64.b64encode(result).decode()}


def execution_lines(document: dict[str, Any]) -> dict[str, Any]:
    """An execution's document for people: what there is to tell, a line for each event."""
    hidden = {"last_scheduled_at", "count", "exact", "tenant", "job", "execution_id", "partition"}
    kept = {k: v for k, v in document.items() if k not in hidden and v not in (None, "", 0)}
    lines = {"execution": document["execution_id"]} | kept
    lines["events"] = [_event_text(event) for event in document["events"]]
    return lines


def open_form(execution: OpenExecution) -> dict[str, Any]:
    """An execution of a job that has not ended, or whose lease is not closed."""
    closing = execution.state == "CLOSING"
    return {
        "execution_id": execution.execution_id,
        # What is decided already, while its worker has not let go.
        "state": execution.reason if closing else execution.state,
        "reason": "" if closing else execution.reason,
        "closing": closing,
        "delivery": execution.delivery,
        "lost": execution.lost,
        "worker": execution.worker,
        "lease_until": instant(execution.lease_until),
        "started_at": instant(execution.started_at),
    }


def open_text(form: dict[str, Any]) -> str:
    """An open execution in one line."""
    told = f"{form['execution_id']}  {_state_text(form)}"
    if form["worker"]:
        told += f", delivery {form['delivery']} at {form['worker']} until {form['lease_until']}"
    if form["closing"]:
        told += ", which has not let go yet"
    return told + (f", {form['lost']} leases lost" if form["lost"] else "")


def instant(at_ms: int) -> str | None:
    """UTC text; None for an instant that is not there."""
    return format_instant(at_ms) if at_ms else None


def _event_text(event: dict[str, Any]) -> str:
    told = f"{event['at']}  {_state_text(event)}"
    if event["worker"]:
        told += f", delivery {event['delivery']} at {event['worker']}"
    return told + (f": {event['detail']}" if event["detail"] else "")


def _state_text(form: dict[str, Any]) -> str:
    return f"{form['state']}({form['reason']})" if form["reason"] else str(form["state"])
