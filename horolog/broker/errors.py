"""What can go wrong with the embedded broker, worded for the person who reads it."""


class BrokerError(Exception):
    """The embedded broker cannot do what was asked; the message says why and what would help."""


class ToolMissing(BrokerError):
    """Java or Maven is missing or unfit. The message names what to install; nothing was changed."""
