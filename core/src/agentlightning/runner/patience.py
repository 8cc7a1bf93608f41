"""Trying again, for a while, what a store that can't be reached did not do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from agentlightning.errors import StoreClosed, StoreUnavailable

logger = logging.getLogger("agentlightning.runner")

T = TypeVar("T")
_LONGEST_PAUSE_S: Final = 5.0


def patiently(
    call: Callable[[], T],
    *,
    what: str,
    deadline_s: float,
    on: type[StoreUnavailable] = StoreUnavailable,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """``call()``, repeated while the store is unavailable; every write of a store may be repeated.

    Args:
        call: what is tried.
        what: how messages name it.
        deadline_s: for how long.
        on: what is tried again; :class:`StoreAway` where any other trouble is here to stay.
        sleep: passes the time between two tries.

    Raises:
        StoreUnavailable: for longer than ``deadline_s`` seconds, or for good.
    """
    end = time.monotonic() + deadline_s
    pause, is_told = 0.1, False
    while True:
        try:
            return call()
        except StoreClosed:
            raise
        except on as error:
            left = end - time.monotonic()
            if left <= 0:
                raise type(error)(
                    f"could not {what} for {deadline_s:g} s, giving up: {error}"
                ) from error
            level = logging.DEBUG if is_told else logging.WARNING
            logger.log(level, "could not %s, trying again for %.0f s: %s", what, left, error)
            is_told = True
            sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
