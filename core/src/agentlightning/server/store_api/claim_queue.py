"""Claims that wait for work: one queue a run, so that a new rollout makes a look and no stampede."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agentlightning.errors import AgentLightningError
from agentlightning.server.store_api.bells import Bell
from agentlightning.server.store_api.calls import is_open
from agentlightning.server.store_api.workers import Workers
from agentlightning.store import Store
from agentlightning.store.http import messages as m

logger = logging.getLogger("agentlightning.server")

_AT_ONCE: Final = 32
"""Waiters that one look into the store may serve; so long, others' calls wait at most."""

_SHORTEST_SLEEP_S: Final = 0.01
_NOTHING: Final = m.Claims(claims=[])


@dataclass(frozen=True, eq=False)
class _Waiter:
    ask: m.ClaimWork
    given: asyncio.Future[m.Claims]
    leaves: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class _Look:
    """What one look brought."""

    given: list[tuple[_Waiter, m.Claims | Exception]]
    is_open: bool
    is_empty: bool
    expiry_s: float | None


class ClaimQueue:
    """The claims that wait for one run's work (or for any run's), oldest first.

    Args:
        store: where the work is.
        bell: rings when there is some.
        workers: run the looks.
    """

    def __init__(self, store: Store, bell: Bell, workers: Workers) -> None:
        self._store = store
        self.bell = bell
        self._workers = workers
        self._waiting: dict[_Waiter, None] = {}
        self._looked_for: list[_Waiter] = []
        self._serving: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, ask: m.ClaimWork) -> asyncio.Future[m.Claims]:
        """Wait at the end of the queue, until :meth:`leave`; who just goes cancels the future."""
        waiter = _Waiter(ask, asyncio.get_running_loop().create_future())
        self._waiting[waiter] = None
        waiter.given.add_done_callback(lambda _future: self._waiting.pop(waiter, None))
        if self._serving is None:
            self._serving = asyncio.ensure_future(self._serve())
        return waiter.given

    def leave(self, given: asyncio.Future[m.Claims]) -> None:
        """Let a claim return, with nothing unless something is being claimed for it just now."""
        self._let_go([waiter for waiter in self._waiting if waiter.given is given])

    def stop_waiting(self, worker_id: str) -> None:
        """Let a worker's claims return, likewise."""
        self._let_go([waiter for waiter in self._waiting if waiter.ask.worker_id == worker_id])

    def _let_go(self, waiters: Sequence[_Waiter]) -> None:
        for waiter in waiters:
            waiter.leaves.set()
            if waiter not in self._looked_for:
                _hand(waiter, _NOTHING)

    def close(self) -> None:
        """Serve nobody any more."""
        if self._serving is not None:
            self._serving.cancel()

    async def _serve(self) -> None:
        """Look for the first in the queue, then for the next, until there is nothing; sleep."""
        try:
            with self.bell.in_use():
                while self._waiting:
                    await self._give_out()
        except Exception as error:  # noqa: BLE001 - whatever it is, each client is told, and it is logged there
            self._answer_all(error)
        finally:
            self._serving = None

    async def _give_out(self) -> None:
        heard = self.bell.count
        self._looked_for = list(self._waiting)[:_AT_ONCE]
        try:
            look = await self._workers.run(self._look, self._looked_for)
            for waiter, given in look.given:
                _hand(waiter, given)
        finally:
            leaving = [waiter for waiter in self._looked_for if waiter.leaves.is_set()]
            self._looked_for = []
            for waiter in leaving:
                _hand(waiter, _NOTHING)
        if not look.is_open:
            self._answer_all(m.Claims(claims=[], run_is_open=False))
        elif look.is_empty:
            await self._sleep(heard, look.expiry_s)

    def _look(self, waiters: Sequence[_Waiter]) -> _Look:
        """Claim for one waiter after the other until there is nothing left (in a thread)."""
        given: list[tuple[_Waiter, m.Claims | Exception]] = []
        for waiter in waiters:
            if waiter.given.done() or waiter.leaves.is_set():
                continue
            ask = waiter.ask
            try:
                claims = self._store.claim(ask.run_id, ask.worker_id, limit=ask.limit, key=ask.key)
            except AgentLightningError as error:
                given.append((waiter, error))
                continue
            if not claims:
                still_open = is_open(self._store, ask.run_id)
                return _Look(given, still_open, True, self._store.seconds_to_expiry())
            given.append((waiter, m.Claims(claims=claims)))
        return _Look(given, True, False, None)

    async def _sleep(self, heard: int, expiry_s: float | None) -> None:
        timeout = None if expiry_s is None else max(expiry_s, _SHORTEST_SLEEP_S)
        woken = self.bell.passed(heard)
        try:
            await asyncio.wait({woken}, timeout=timeout)
        finally:
            woken.cancel()

    def _answer_all(self, given: m.Claims | Exception) -> None:
        for waiter in list(self._waiting):
            _hand(waiter, given)


def _hand(waiter: _Waiter, given: m.Claims | Exception) -> None:
    if not waiter.given.done():
        if isinstance(given, Exception):
            waiter.given.set_exception(given)
        else:
            waiter.given.set_result(given)
    elif isinstance(given, m.Claims) and given.claims:
        names = ", ".join(f"{claim.key.rollout_id}/{claim.key.number}" for claim in given.claims)
        logger.warning(
            "worker %s left in the moment it was given %s; the lease gives it back",
            waiter.ask.worker_id,
            names,
        )
