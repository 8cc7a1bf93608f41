"""The API key that stands in for one that is not set, so that clients can be made.

Where the run serves the agent's model its calls carry the attempt's token, and no key is needed; but
SDKs make no client without one. The stand-in is good for nothing else: a request that would carry it
to a server that is not ours is refused, with the reason.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from agentlightning.errors import MissingKey

logger = logging.getLogger("agentlightning.recording")

VARIABLE: Final = "OPENAI_API_KEY"
STAND_IN: Final = "served-by-agentlightning"


class _Users:
    """How many runs of this process need it, and what the variable was before the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._earlier: str | None = None

    def enter(self) -> bool:
        """Set the variable, unless it holds a key of the user's."""
        with self._lock:
            present = os.environ.get(VARIABLE)
            if present and present != STAND_IN:
                return False
            if self._count == 0:
                self._earlier = present
                os.environ[VARIABLE] = STAND_IN
                logger.info(
                    "%s is not set; it is %r while the run lasts, so that clients can be made. The "
                    "agent's calls go to the run's own model and carry its token",
                    VARIABLE,
                    STAND_IN,
                )
            self._count += 1
            return True

    def leave(self) -> None:
        """Put it back when nobody needs it any more, unless somebody has set a key meanwhile."""
        with self._lock:
            self._count -= 1
            if self._count or os.environ.get(VARIABLE) != STAND_IN:
                return
            if self._earlier is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = self._earlier


_users: Final = _Users()


@contextmanager
def stand_in_key() -> Iterator[None]:
    """Set the variable for the body, if it is not set; several bodies at once share it."""
    entered = _users.enter()
    try:
        yield
    finally:
        if entered:
            _users.leave()


def real_key(key: str | None) -> str | None:
    """``key``, or None for the stand-in: what to send to a server that is not ours."""
    return None if key == STAND_IN else key


def missing_key(url: str) -> MissingKey:
    """The error for a request that would carry the stand-in to ``url``."""
    return MissingKey(
        f"{VARIABLE} is not set, and the request to {url.partition('?')[0]} needs a key: it goes to a "
        f"server that this run does not serve. Set {VARIABLE}, or give the client its api_key; a "
        "server that asks for none takes any text"
    )
