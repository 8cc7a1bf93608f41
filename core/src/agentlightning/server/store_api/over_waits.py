"""Waiting until rollouts are over."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from agentlightning.errors import BadValue
from agentlightning.records import ROLLOUT_OVER, Rollout
from agentlightning.server.store_api.bells import Bell
from agentlightning.server.store_api.workers import Workers
from agentlightning.store import RolloutQuery, Store
from agentlightning.store.http import messages as m

_PAGE: Final = 1000
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
        self._order = list(dict.fromkeys(ask.rollout_ids))
        self._pending = dict.fromkeys(self._order)
        self._over: dict[str, Rollout] = {}
        self._count = len(self._order) if ask.count is None else ask.count
        if not 0 <= self._count <= len(self._order):
            raise BadValue(
                f"count is {ask.count} for {len(self._order)} rollouts; expected at most as many, or "
                "null for all"
            )

    @property
    def over(self) -> list[Rollout]:
        """Those that were found to be over, in the order of the request."""
        return [self._over[name] for name in self._order if name in self._over]

    def look(self) -> bool:
        """Look for those that are over by now; whether they are enough. Not for the event loop."""
        pending = list(self._pending)
        for start in range(0, len(pending), _PAGE):
            query = RolloutQuery(
                rollout_ids=tuple(pending[start : start + _PAGE]),
                status=tuple(ROLLOUT_OVER),
                limit=_PAGE,
            )
            for rollout in self._store.rollouts(query).items:
                self._over[rollout.rollout_id] = rollout
                del self._pending[rollout.rollout_id]
        return len(self._over) >= self._count

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
