"""The operations that may be held back: claim, wait_over, changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec
from starlette.types import Receive

from agentlightning.server.store_api.access import Caller
from agentlightning.server.store_api.bells import Bell, Bells, Which
from agentlightning.server.store_api.calls import check_claims, is_open
from agentlightning.server.store_api.claim_queue import ClaimQueue
from agentlightning.server.store_api.held import Held, held_for
from agentlightning.server.store_api.over_waits import OverWait
from agentlightning.server.store_api.workers import Workers
from agentlightning.store import Store
from agentlightning.store.http import messages as m
from agentlightning.store.http import operations as ops

_STOPPED_FOR_S: Final = 1.0
"""A claim may be on its way when its worker stops waiting; so long, none of that worker's is held."""

Waiting: TypeAlias = Callable[[Any, Caller, Receive], Awaitable[msgspec.Struct]]


class WaitingCalls:
    """What one server holds back; made and used on its event loop.

    Args:
        store: what is asked.
        workers: in which it is asked.
    """

    def __init__(self, store: Store, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._bells = Bells(store, asyncio.get_running_loop())
        self._held = Held()
        self._queues: dict[str | None, ClaimQueue] = {}
        self._stopped: dict[tuple[str, str | None], float] = {}
        self.calls: dict[str, Waiting] = {
            ops.CLAIM.name: self._claim,
            ops.STOP_WAITING.name: self._stop_waiting,
            ops.WAIT_OVER.name: self._wait_over,
            ops.CHANGES.name: self._changes,
        }

    def release(self) -> None:
        """Answer whoever waits: the server is about to stop."""
        self._held.release()

    def close(self) -> None:
        """Stop watching the store."""
        for queue in self._queues.values():
            queue.close()
        self._bells.close()

    # --- claim ------------------------------------------------------------------------------

    async def _claim(self, ask: m.ClaimWork, _caller: Caller, receive: Receive) -> m.Claims:
        check_claims(ask.limit)
        wait_s = held_for(ask.wait_s)
        queue = self._queues.get(ask.run_id)
        nothing_there = queue is not None and len(queue) > 0  # else they would not wait
        if not (wait_s and nothing_there):
            reply = await self._workers.run(_look, self._store, ask)
            if reply.claims or not reply.run_is_open or not wait_s:
                return reply
        queue = await self._queue(ask.run_id)
        if self._has_stopped(ask):
            return m.Claims(claims=[])
        return await self._queued(queue, ask, wait_s, receive)

    async def _queued(
        self, queue: ClaimQueue, ask: m.ClaimWork, wait_s: float, receive: Receive
    ) -> m.Claims:
        """What the queue gives; at the end of the time, also what it is just about to give."""
        given = queue.join(ask)
        try:
            if await self._held.until(asyncio.shield(given), wait_s, receive) is None:
                queue.leave(given)
            return await given
        finally:
            given.cancel()

    async def _queue(self, run_id: str | None) -> ClaimQueue:
        bell = await self._bell((run_id, "queued"))
        queue = self._queues.get(run_id)
        if queue is None or queue.bell is not bell:  # another one only if nobody waited for long
            for name in [name for name, other in self._queues.items() if not len(other)]:
                self._queues.pop(name).close()
            queue = self._queues[run_id] = ClaimQueue(self._store, bell, self._workers)
        return queue

    async def _bell(self, which: Which) -> Bell:
        known = self._bells.known(which)
        return await self._workers.run(self._bells.get, which) if known is None else known

    async def _stop_waiting(self, ask: m.StopWaiting, caller: Caller, _receive: Receive) -> m.Done:
        now = time.monotonic()
        self._stopped = {which: until for which, until in self._stopped.items() if until > now}
        self._stopped[ask.worker_id, caller.run_id] = now + _STOPPED_FOR_S
        for run_id, queue in self._queues.items():
            if caller.run_id in (None, run_id):
                queue.stop_waiting(ask.worker_id)
        return m.Done()

    def _has_stopped(self, ask: m.ClaimWork) -> bool:
        runs = (None, ask.run_id)  # whoever stopped it in every run, or in this one
        until = max(self._stopped.get((ask.worker_id, run_id), 0.0) for run_id in runs)
        return until > time.monotonic()

    # --- wait_over and changes --------------------------------------------------------------

    async def _wait_over(self, ask: m.WaitOver, _caller: Caller, receive: Receive) -> m.Rollouts:
        wait_s = held_for(ask.wait_s)
        wait = OverWait(self._store, ask)
        if not await self._workers.run(wait.look) and wait_s:
            bell = await self._bell((None, "over"))
            until_over = asyncio.ensure_future(wait.until_over(bell, self._workers))
            await self._held.until(until_over, wait_s, receive)
        return m.Rollouts(rollouts=wait.over)

    async def _changes(self, ask: m.Changes, _caller: Caller, receive: Receive) -> m.Changed:
        wait_s = held_for(ask.wait_s)
        bell = await self._bell((ask.run_id, ask.on))
        bell_id, _, count = (ask.since or "").partition("-")
        if bell_id == bell.id and count == str(bell.count):
            with bell.in_use():
                await self._held.until(bell.passed(bell.count), wait_s, receive)
        now = f"{bell.id}-{bell.count}"
        return m.Changed(changed=now != ask.since, now=now)


def _look(store: Store, ask: m.ClaimWork) -> m.Claims:
    claims = store.claim(ask.run_id, ask.worker_id, limit=ask.limit, key=ask.key)
    return m.Claims(claims=claims, run_is_open=bool(claims) or is_open(store, ask.run_id))
