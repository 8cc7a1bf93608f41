"""Work for idle workers: one of them at a time asks the store, for all that are idle."""

from __future__ import annotations

import threading
from typing import Final

from agentlightning.runner.patience import patiently
from agentlightning.store import Claim, Store

_SHORTEST_SLEEP_S: Final = 0.001


class Claims:
    """Hands out claims, so that sixty idle threads are one waiter to the store and not sixty.

    Args:
        run_id: whose rollouts; None for every run of the store.
        patience_s: how long the store may be unavailable before the workers give up.
    """

    def __init__(self, store: Store, run_id: str | None, worker_id: str, *, patience_s: float) -> None:
        self._store = store
        self._run_id = run_id
        self._worker_id = worker_id
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._ready: list[Claim] = []
        self._idle = 0
        self._asking = False
        self._closed = False
        self._woken = threading.Event()

    def next(self) -> Claim | None:
        """Wait for a rollout to run; None when the run is not open any more, or after :meth:`close`.

        Raises:
            StoreUnavailable: the store could not be reached for too long.
        """
        with self._changed:
            self._idle += 1
            try:
                while not (self._ready or self._closed):
                    if self._asking:
                        self._changed.wait()
                    else:
                        self._ask()
                return self._ready.pop(0) if self._ready else None
            finally:
                self._idle -= 1

    def close(self) -> None:
        """Claim no more; those claimed already are still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._woken.set()

    def _ask(self) -> None:
        """Ask the store, with the lock given up meanwhile."""
        self._asking = True
        limit = self._idle
        self._changed.release()
        claims: list[Claim] = []
        try:
            claims = patiently(
                lambda: self._wait(limit),
                what="claim work",
                deadline_s=self._patience_s,
                sleep=self._woken.wait,
            )
        finally:
            self._changed.acquire()
            self._asking = False
            self._ready.extend(claims)
            self._closed = self._closed or not claims
            self._changed.notify_all()

    def _wait(self, limit: int) -> list[Claim]:
        """Sleep until there is something to claim, or the run is over (then nothing is returned).

        What :func:`~agentlightning.store.waiting.claim_when_ready` does, with one more reason to wake.
        """
        store, run_id = self._store, self._run_id
        forget = store.watch(run_id, self._woken.set, on="queued")
        try:
            while True:
                self._woken.clear()  # before looking: what happens from now on wakes us again
                if self._closed or (run_id is not None and store.run(run_id).status != "open"):
                    return []
                if claims := store.claim(run_id, self._worker_id, limit=limit):
                    return claims
                self._woken.wait(self._sleep_s())
        finally:
            forget()

    def _sleep_s(self) -> float | None:
        """Until the next lease ends, which makes work without anybody doing anything."""
        expiry = self._store.seconds_to_expiry()
        return None if expiry is None else max(expiry, _SHORTEST_SLEEP_S)
