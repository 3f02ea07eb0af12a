"""What can go wrong with the embedded broker, worded for the person who reads it."""


class BrokerError(Exception):
    """The embedded broker cannot do what was asked; the message says why and what would help."""


class ToolMissing(BrokerError):
    """Java, Maven or Docker is missing or unfit. The message names what to install; nothing was
    changed."""


class NoJava(ToolMissing):
    """There is no Java at all, not even a wrong one: something else may run Kafka."""
