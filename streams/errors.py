"""Errors, named for what the caller does next. Adapters map a client's exceptions once."""


class StreamError(Exception):
    """Something went wrong between us and the log or the store."""


class Doubt(StreamError):
    """The outcome is not certain. Drop overlay and reads, take over again. `refusals` names what
    brought it about, where that is known: leave it out next time."""

    def __init__(self, message: str, refusals: "tuple[Refusal, ...]" = ()) -> None:
        super().__init__(message)
        self.refusals = refusals


class Fenced(StreamError):
    """Another producer holds the epoch. Take over again if the next poll still gives us the
    partition; else close the task."""


class Aborted(StreamError):
    """The transaction was aborted and nothing of it is visible; the producer may go on. `topic`
    names the topic that refused a record, where it is known."""

    def __init__(self, message: str, refusals: "tuple[Refusal, ...]" = ()) -> None:
        super().__init__(message)
        self.refusals = refusals


class Refusal(Exception):
    """A topic refused a record, or all of them."""

    def __init__(self, topic: str, tag: str, reason: str, *, whole_topic: bool) -> None:
        super().__init__(f"topic {topic}: {reason}")
        self.topic = topic
        self.tag = tag
        self.reason = reason
        self.whole_topic = whole_topic


class PoisonRecord(StreamError):
    """These bytes can never be used. Set the record aside and move on; nothing was decided."""


class Unavailable(StreamError):
    """The log did not answer in time. Try again; nothing has happened."""


class OutOfRange(StreamError):
    """A position is outside the log: before its start or after its end."""

    def __init__(self, message: str, partition: "tuple[str, int] | None" = None) -> None:
        super().__init__(message)
        self.partition = partition


class Corrupt(StreamError):
    """The store cannot be trusted. Wipe it and restore from the log."""


class Refuse(StreamError):
    """Going on would break a promise. Stop the process and tell the operator why."""
