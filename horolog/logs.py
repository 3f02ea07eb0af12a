"""Logs of a service: to stderr, for eyes on a terminal and as JSON lines elsewhere."""

import logging
import sys
from typing import Any

import structlog


def configure(**always: str) -> None:
    """Set logging up for this process; `always` stands in every line (service, member …).

    What libraries log through the standard library comes out alike, from warnings up.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    terminal = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if terminal else _json()
    finish: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not terminal:
        finish.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[*finish, renderer]
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("horolog").setLevel(logging.INFO)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**always)


def _json() -> Any:
    import msgspec

    def serialize(record: object, **_: object) -> str:
        return msgspec.json.encode(record, enc_hook=repr).decode()

    return structlog.processors.JSONRenderer(serializer=serialize)
