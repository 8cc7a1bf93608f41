"""Waiting until rollouts are over."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from agentlightning.records import Rollout
from agentlightning.server.store_api.bells import Bell
from agentlightning.server.store_api.workers import Workers
from agentlightning.store import Store
from agentlightning.store.http import messages as m
from agentlightning.store.looks import Over, OverLook

_SHORTEST_SLEEP_S: Final = 0.01
_REST: Final = 2.0
"""A waiter rests this many times as long as it has looked: rollouts that end by the thousand would
otherwise make a look each."""


class OverWait:
    """One request that waits; remembers which of its rollouts are over.

    Args:
        store: where they are.
        ask: the request.

    Raises:
        BadValue: more are waited for than are named.
    """

    def __init__(self, store: Store, ask: m.WaitOver) -> None:
        self._store = store
        self._over = Over(ask.rollout_ids, ask.count)
        self._look = OverLook(store, self._over)

    @property
    def over(self) -> list[Rollout]:
        """Those that were found to be over, in the order of the request."""
        return self._over.found

    def look(self) -> bool:
        """Look for those that are over by now; whether they are enough. Not for the event loop."""
        return self._look() is not None

    async def until_over(self, bell: Bell, workers: Workers) -> None:
        """Look whenever rollouts have ended or a lease has, until enough are over."""
        with bell.in_use():
            while not await self._look_and_sleep(bell, workers):
                continue

    async def _look_and_sleep(self, bell: Bell, workers: Workers) -> bool:
        heard, started = bell.count, time.monotonic()
        enough, expiry_s = await workers.run(self._look_again)
        if enough:
            return True
        await asyncio.sleep(_REST * (time.monotonic() - started))
        timeout = None if expiry_s is None else max(expiry_s, _SHORTEST_SLEEP_S)
        woken = bell.passed(heard)
        try:
            await asyncio.wait({woken}, timeout=timeout)
        finally:
            woken.cancel()
        return False

    def _look_again(self) -> tuple[bool, float | None]:
        return self.look(), self._store.seconds_to_expiry()
