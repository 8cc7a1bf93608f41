"""Blocking and async waits over any store: look, sleep until woken or a lease ends, look again.

Nothing is polled: :meth:`Store.watch` wakes the waiter, and the one thing that happens without anybody
doing it, a lease running out, is slept for. A waiting coroutine holds no thread; only its looks,
which may touch a disk or a network, run in one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from agentlightning.errors import BadValue, Deadline
from agentlightning.records import ROLLOUT_OVER, Rollout
from agentlightning.store.contract import Store
from agentlightning.store.types import Change, Claim, RolloutQuery

T = TypeVar("T")

_SHORTEST_SLEEP_S = 0.001
_PAGE = 1000


def claim_when_ready(
    store: Store, run_id: str | None, worker_id: str, *, limit: int = 1, timeout_s: float
) -> list[Claim]:
    """Claim as soon as there is something to claim.

    Returns:
        Up to ``limit`` claims; none at the deadline, or at once when the run is closed.
    """
    look = _ClaimLook(store, run_id, worker_id, limit)
    return _sleep_between_looks(store, run_id, "queued", look, timeout_s) or []


async def claim_when_ready_async(
    store: Store, run_id: str | None, worker_id: str, *, limit: int = 1, timeout_s: float
) -> list[Claim]:
    """:func:`claim_when_ready` for coroutines.

    A coroutine cancelled in the moment of a claim leaves that attempt to its lease.
    """
    look = _ClaimLook(store, run_id, worker_id, limit)
    return await _await_between_looks(store, run_id, "queued", look, timeout_s) or []


def wait(
    store: Store, rollout_ids: Sequence[str], *, timeout_s: float, count: int | None = None
) -> list[Rollout]:
    """Wait until ``count`` of these rollouts are over (default: all).

    Returns:
        Those that are over, in the order of ``rollout_ids``: ``count`` or more.

    Raises:
        Deadline: fewer are over after ``timeout_s`` seconds; the message says how many.
        UnknownRollout: an id the store does not have.
    """
    look = _OverLook(store, rollout_ids, count)
    found = _sleep_between_looks(store, None, "over", look, timeout_s)
    return look.missed(timeout_s) if found is None else found


async def wait_async(
    store: Store, rollout_ids: Sequence[str], *, timeout_s: float, count: int | None = None
) -> list[Rollout]:
    """:func:`wait` for coroutines."""
    look = _OverLook(store, rollout_ids, count)
    found = await _await_between_looks(store, None, "over", look, timeout_s)
    return look.missed(timeout_s) if found is None else found


class _ClaimLook:
    """One look for something to claim; None means: go on waiting."""

    def __init__(self, store: Store, run_id: str | None, worker_id: str, limit: int) -> None:
        self._store = store
        self._run_id = run_id
        self._worker_id = worker_id
        self._limit = limit

    def __call__(self) -> list[Claim] | None:
        claims = self._store.claim(self._run_id, self._worker_id, limit=self._limit)
        if claims:
            return claims
        is_closed = self._run_id is not None and self._store.run(self._run_id).status != "open"
        return [] if is_closed else None


class _OverLook:
    """One look for rollouts that are over; remembers those it has seen."""

    def __init__(self, store: Store, rollout_ids: Sequence[str], count: int | None) -> None:
        self._store = store
        self._order = list(dict.fromkeys(rollout_ids))
        self._pending = set(self._order)
        self._over: dict[str, Rollout] = {}
        self._count = len(self._order) if count is None else count
        if not 0 <= self._count <= len(self._order):
            raise BadValue(
                f"waiting for {count} of {len(self._order)} rollouts; expected at most as many"
            )

    def __call__(self) -> list[Rollout] | None:
        for rollout in self._finished() if self._pending else ():
            self._over[rollout.rollout_id] = rollout
            self._pending.discard(rollout.rollout_id)
        if len(self._over) < self._count:
            return None
        return [self._over[name] for name in self._order if name in self._over]

    def _finished(self) -> list[Rollout]:
        names = [name for name in self._order if name in self._pending]
        found: list[Rollout] = []
        for start in range(0, len(names), _PAGE):
            query = RolloutQuery(
                rollout_ids=tuple(names[start : start + _PAGE]),
                status=tuple(ROLLOUT_OVER),
                limit=_PAGE,
            )
            found += self._store.rollouts(query).items
        return found

    def missed(self, timeout_s: float) -> list[Rollout]:
        raise Deadline(
            f"{len(self._over)} of {len(self._order)} rollouts were over after {timeout_s:g} s, "
            f"{self._count} were waited for; is a runner at work on this store?"
        )


def _sleep_between_looks(
    store: Store,
    run_id: str | None,
    on: Change,
    look: Callable[[], T | None],
    timeout_s: float,
) -> T | None:
    deadline = time.monotonic() + timeout_s
    woken = threading.Event()
    forget = store.watch(run_id, woken.set, on=on)
    try:
        while True:
            woken.clear()  # before looking: what happens from now on wakes us again
            if (found := look()) is not None:
                return found
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            woken.wait(_sleep_s(store, remaining))
    finally:
        forget()


async def _await_between_looks(
    store: Store,
    run_id: str | None,
    on: Change,
    look: Callable[[], T | None],
    timeout_s: float,
) -> T | None:
    deadline = time.monotonic() + timeout_s
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(woken.set)

    forget = store.watch(run_id, wake, on=on)
    try:
        while True:
            woken.clear()
            if (found := await asyncio.to_thread(look)) is not None:
                return found
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            sleep_s = await asyncio.to_thread(_sleep_s, store, remaining)
            try:
                await asyncio.wait_for(woken.wait(), sleep_s)
            except TimeoutError:
                continue  # a lease has ended, or the deadline is here: the loop looks once more
    finally:
        forget()


def _sleep_s(store: Store, remaining: float) -> float:
    expiry = store.seconds_to_expiry()
    return remaining if expiry is None else min(remaining, max(expiry, _SHORTEST_SLEEP_S))
