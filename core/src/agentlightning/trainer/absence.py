"""The absences of a store that a training sits out: its server or its database is being restarted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from agentlightning.errors import StoreAway

logger = logging.getLogger("agentlightning.trainer")

T = TypeVar("T")

AWAY_S: Final = 120.0
"""How long a run and its workers wait for their store to come back."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_GONE_S: Final = 10.0
"""How long a store that was waited for in vain is taken to be gone before it is tried again."""


class Absence:
    """Makes calls again while the store is away: all calls of one absence share one time limit.

    So a run that ends because its store is gone does not wait for it once more with each thing that it
    wanted to leave there; what it still asks then is not even tried, but now and again. A store that
    never answered is more likely named wrongly than away, and is not waited for.

    Args:
        limit_s: how long an absence may last.
    """

    def __init__(self, limit_s: float = AWAY_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._has_answered = False
        self._since: float | None = None
        self._gone: tuple[StoreAway, float] | None = None
        self._given_up = threading.Event()

    def sit_out(self, call: Callable[[], T]) -> T:
        """What ``call`` gives; it is made again until the store is back.

        Raises:
            StoreAway: it is not, or nobody waits any longer.
        """
        self._check_gone()
        pause_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                answer = call()
            except StoreAway as error:
                left_s = self._left_s(began, error)
                if left_s <= 0 or self._given_up.wait(min(pause_s, left_s)):
                    self._gone = error, time.monotonic()
                    raise
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._is_here()
                return answer

    def give_up(self) -> None:
        """Wait no longer, now and from now on; from any thread."""
        self._given_up.set()

    def _check_gone(self) -> None:
        if (gone := self._gone) is not None:
            error, at = gone
            if time.monotonic() - at < _GONE_S:
                raise StoreAway(str(error)) from error

    def _left_s(self, began: float, error: StoreAway) -> float:
        with self._lock:
            if not self._has_answered or self._given_up.is_set():
                return 0.0
            if self._since is None:
                self._since = began
                logger.warning("the store is away; waiting %g s for it: %s", self._limit_s, error)
            return self._since + self._limit_s - time.monotonic()

    def _is_here(self) -> None:
        if self._since is None and self._has_answered:  # as nearly always
            return
        with self._lock:
            since, self._since, self._gone, self._has_answered = self._since, None, None, True
        if since is not None:
            logger.warning("the store is back after %.0f s", time.monotonic() - since)
