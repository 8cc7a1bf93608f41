"""Work for idle workers: one of them at a time asks the store, for all that are idle."""

from __future__ import annotations

import contextvars
import logging
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Final

from agentlightning.errors import StoreError
from agentlightning.runner.patience import patiently
from agentlightning.store import Claim, PatientStore, Result, Store, Turnover

logger = logging.getLogger("agentlightning.runner")

_SHORTEST_SLEEP_S: Final = 0.001
_HELD_BACK_S: Final = 30.0
"""How long a store that does the waiting itself is asked to hold a claim back at a time."""
_ASK_AGAIN_S: Final = 0.25
_SHORTEST_TURN_S: Final = 0.05
"""What a held-back claim takes at least: a server that is about to stop answers at once."""


class Claims:
    """Hands out claims, so that sixty idle threads are one waiter to the store and not sixty.

    Every claim is asked for under a key of its own, and again under the same one after the store could
    not be reached: a reply that was lost on its way neither loses a claim nor makes a second one.

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

    @property
    def closed(self) -> bool:
        """Whether no more is claimed: the run is over, or the runner is being stopped."""
        return self._closed

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

    def turn_over(self, results: Sequence[Result]) -> Turnover:
        """Finish what a busy worker has done and claim what it does next, in one call.

        Raises:
            StoreUnavailable: the store could not be reached for too long.
        """
        key = self._new_key()
        return patiently(
            lambda: self._store.finish_and_claim(results, self._run_id, self._worker_id, key=key),
            what="finish a rollout",
            deadline_s=self._patience_s,
        )

    def close(self) -> None:
        """Claim no more; those claimed already are still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._woken.set()
        if isinstance(self._store, PatientStore):
            # In a thread of its own: the store may be away, and whoever stops has a deadline.
            thread = threading.Thread(
                target=self._call_back, args=(self._store,), name="agentlightning-stop", daemon=True
            )
            contextvars.Context().run(thread.start)

    def _call_back(self, store: PatientStore) -> None:
        """End the claim that waits at the store; again, if it was still on its way there."""
        while self._asking:
            try:
                store.stop_waiting(self._worker_id)
            except StoreError as error:
                logger.warning("a waiting claim could not be called back, it ends by itself: %s", error)
                return
            with self._changed:
                self._changed.wait_for(lambda: not self._asking, _ASK_AGAIN_S)

    def _new_key(self) -> str:
        return f"{self._worker_id}-{secrets.token_hex(8)}"

    def _ask(self) -> None:
        """Ask the store, with the lock given up meanwhile."""
        self._asking = True
        limit, key = self._idle, self._new_key()
        self._changed.release()
        claims: list[Claim] = []
        try:
            claims = patiently(
                lambda: self._wait(limit, key),
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

    def _wait(self, limit: int, key: str) -> list[Claim]:
        """Return what there is to claim as soon as there is something; nothing once the run is over."""
        if self._closed:  # while the store was away; a stop cuts the pauses between tries short
            return []
        if isinstance(self._store, PatientStore):
            return self._wait_there(self._store, limit, key)
        return self._wait_here(limit, key)

    def _wait_there(self, store: PatientStore, limit: int, key: str) -> list[Claim]:
        """Let the store do the waiting."""
        while not self._closed:
            began = time.monotonic()
            claims, run_is_open = store.claim_waiting(
                self._run_id, self._worker_id, limit=limit, timeout_s=_HELD_BACK_S, key=key
            )
            if claims or not run_is_open:
                return claims
            self._woken.wait(max(0.0, began + _SHORTEST_TURN_S - time.monotonic()))
        return []

    def _wait_here(self, limit: int, key: str) -> list[Claim]:
        """Look, sleep until woken or a lease ends, look again.

        What :func:`~agentlightning.store.waiting.claim_when_ready` does, with one more reason to wake.
        """
        store, run_id = self._store, self._run_id
        forget = store.watch(run_id, self._woken.set, on="queued")
        try:
            while True:
                self._woken.clear()  # before looking: what happens from now on wakes us again
                if self._closed or (run_id is not None and store.run(run_id).status != "open"):
                    return []
                if claims := store.claim(run_id, self._worker_id, limit=limit, key=key):
                    return claims
                self._woken.wait(self._sleep_s())
        finally:
            forget()

    def _sleep_s(self) -> float | None:
        """Until the next lease ends, which makes work without anybody doing anything."""
        expiry = self._store.seconds_to_expiry()
        return None if expiry is None else max(expiry, _SHORTEST_SLEEP_S)
