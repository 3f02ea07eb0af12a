"""Asks a service of this machine something over HTTP, past whatever proxy others are reached by."""

import urllib.error
import urllib.request
from typing import Final

BYTES_MAX: Final = 65_536
_opener: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url: str, timeout_s: float) -> tuple[int, bytes] | None:
    """Status and body of the answer; None if nobody answers."""
    try:
        with _opener.open(url, timeout=timeout_s) as answer:
            return answer.status, answer.read(BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(BYTES_MAX)
    except OSError:
        return None
