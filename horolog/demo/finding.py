"""What a check finds fault with."""

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One broken promise. `kind`: early, lost, doubled, uncovered, unexpected; or `short`: too
    little was seen to say anything."""

    kind: str
    what: str
