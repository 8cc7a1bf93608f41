"""Blocking and async waits over any store: look, sleep until woken or a lease ends, look again.

Nothing is polled: :meth:`Store.watch` wakes the waiter, and the one thing that happens without anybody
doing it, a lease running out, is slept for. A waiting coroutine holds no thread; only its looks,
which may touch a disk or a network, run in one.

A :class:`PatientStore` waits at its far end instead: one request is held back there. It may be away
for a while, when its server is started again; these waits sit that out until their own deadline.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from agentlightning.records import Rollout
from agentlightning.store.contract import Store
from agentlightning.store.looks import ClaimLook, Over, OverLook
from agentlightning.store.patient import Patience, PatientStore
from agentlightning.store.types import Change, Claim

__all__ = ["PatientStore", "claim_when_ready", "claim_when_ready_async", "wait", "wait_async"]

T = TypeVar("T")

_SHORTEST_SLEEP_S: Final = 0.001


def claim_when_ready(
    store: Store, run_id: str | None, worker_id: str, *, limit: int = 1, timeout_s: float
) -> list[Claim]:
    """Claim as soon as there is something to claim.

    Returns:
        Up to ``limit`` claims; none at the deadline, or at once when the run is closed.

    Raises:
        StoreUnavailable: the store cannot be asked; of a store behind a server only if it still is
            away at the deadline.
    """
    patience = Patience(timeout_s)
    if isinstance(store, PatientStore):
        found = _claim_held_back(store, run_id, worker_id, limit, patience)
    else:
        look = ClaimLook(store, run_id, worker_id, limit)
        found = _sleep_between_looks(store, run_id, "queued", look, patience)
    return _claimed(found, patience)


async def claim_when_ready_async(
    store: Store, run_id: str | None, worker_id: str, *, limit: int = 1, timeout_s: float
) -> list[Claim]:
    """:func:`claim_when_ready` for coroutines.

    A coroutine cancelled in the moment of a claim leaves that attempt to its lease.
    """
    look, patience = ClaimLook(store, run_id, worker_id, limit), Patience(timeout_s)
    found = await _await_between_looks(store, run_id, "queued", look, patience)
    return _claimed(found, patience)


def wait(
    store: Store, rollout_ids: Sequence[str], *, timeout_s: float, count: int | None = None
) -> list[Rollout]:
    """Wait until ``count`` of these rollouts are over (default: all).

    Returns:
        Those that are over, in the order of ``rollout_ids``: ``count`` or more.

    Raises:
        Deadline: fewer are over after ``timeout_s`` seconds, or a store behind a server is away by
            then; the message says how many.
        UnknownRollout: an id the store does not have.
    """
    over, patience = Over(rollout_ids, count), Patience(timeout_s)
    if isinstance(store, PatientStore):
        found = _wait_held_back(store, over, patience)
    else:
        found = _sleep_between_looks(store, None, "over", OverLook(store, over), patience)
    return over.missed(timeout_s, patience.trouble) if found is None else found


async def wait_async(
    store: Store, rollout_ids: Sequence[str], *, timeout_s: float, count: int | None = None
) -> list[Rollout]:
    """:func:`wait` for coroutines."""
    over, patience = Over(rollout_ids, count), Patience(timeout_s)
    found = await _await_between_looks(store, None, "over", OverLook(store, over), patience)
    return over.missed(timeout_s, patience.trouble) if found is None else found


def _claimed(found: list[Claim] | None, patience: Patience) -> list[Claim]:
    if found is None and patience.trouble is not None:
        raise patience.trouble
    return found or []


def _claim_held_back(
    store: PatientStore, run_id: str | None, worker_id: str, limit: int, patience: Patience
) -> list[Claim] | None:
    key = secrets.token_hex(16)  # so that claims whose reply is lost come with the next one

    def ask(left_s: float) -> list[Claim] | None:
        claims, is_open = store.claim_waiting(run_id, worker_id, limit=limit, timeout_s=left_s, key=key)
        return claims if claims or not is_open else None

    return patience.ask_until_answered(ask)


def _wait_held_back(store: PatientStore, over: Over, patience: Patience) -> list[Rollout] | None:
    def ask(left_s: float) -> list[Rollout] | None:
        pending = over.pending
        return over.saw(
            store.wait_over(pending, timeout_s=left_s, count=over.missing) if pending else ()
        )

    return patience.ask_until_answered(ask)


def _sleep_between_looks(
    store: Store, run_id: str | None, on: Change, look: Callable[[], T | None], patience: Patience
) -> T | None:
    woken = threading.Event()
    forget = store.watch(run_id, woken.set, on=on)
    try:
        while True:
            woken.clear()  # before looking: what happens from now on wakes us again
            found, sleep_s = _look(store, look, patience)
            if found is not None or patience.left_s <= 0:
                return found
            woken.wait(sleep_s)
    finally:
        forget()


async def _await_between_looks(
    store: Store, run_id: str | None, on: Change, look: Callable[[], T | None], patience: Patience
) -> T | None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(woken.set)

    subscription = _Subscription()
    try:
        subscribe = partial(subscription.make, store, run_id, wake, on)
        if isinstance(store, PatientStore):  # which is asked for it, over a network
            await asyncio.to_thread(subscribe)
        else:
            subscribe()
        while True:
            woken.clear()
            found, sleep_s = await asyncio.to_thread(lambda: _look(store, look, patience))
            if found is not None or patience.left_s <= 0:
                return found
            try:
                await asyncio.wait_for(woken.wait(), sleep_s)
            except TimeoutError:
                continue  # a lease has ended, or the deadline is here: the loop looks once more
    finally:
        subscription.give_up()


class _Subscription:
    """Watches a store until it is given up, which may be while it is still being made in a thread."""

    def __init__(self) -> None:
        self._given_up = False
        self._forget: Callable[[], None] | None = None

    def make(self, store: Store, run_id: str | None, wake: Callable[[], None], on: Change) -> None:
        """Begin to watch."""
        self._forget = store.watch(run_id, wake, on=on)
        if self._given_up:
            self._forget()

    def give_up(self) -> None:
        """Watch no more."""
        self._given_up = True
        if self._forget is not None:
            self._forget()


def _look(store: Store, look: Callable[[], T | None], patience: Patience) -> tuple[T | None, float]:
    """The answer, or None and how long to sleep unless woken."""

    def ask() -> tuple[T | None, float | None]:
        found = look()
        return found, store.seconds_to_expiry() if found is None else None

    answer = patience.ask(ask) if isinstance(store, PatientStore) else ask()
    if answer is None:
        return None, patience.pause_s
    found, expiry_s = answer
    left_s = patience.left_s
    return found, left_s if expiry_s is None else min(left_s, max(expiry_s, _SHORTEST_SLEEP_S))
