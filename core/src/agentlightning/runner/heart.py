"""Heartbeats: one thread a runner renews the leases of all its attempts and hears which to give up."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from agentlightning.errors import StoreUnavailable
from agentlightning.records import JSON, AttemptKey
from agentlightning.runner.execution import Execution
from agentlightning.store import Order, Store

logger = logging.getLogger("agentlightning.runner")

_LONGEST_PAUSE_S: Final = 2.0
"""How late a cancellation is heard at most; leases alone would allow longer pauses."""
_BEATS_A_LEASE: Final = 4


class Heart:
    """Beats for the attempts it was given until they are taken away.

    A store that can't be reached costs a beat and nothing else: the next one may still be in time, and
    an attempt whose lease is gone is told ``LOST`` then.
    """

    def __init__(self, store: Store, worker_id: str, report: Callable[[], dict[str, JSON]]) -> None:
        self._store = store
        self._worker_id = worker_id
        self._report = report
        self._changed = threading.Condition()
        self._running: dict[AttemptKey, Execution] = {}
        self._thread: threading.Thread | None = None
        self._is_away = False
        self.failed_beats = 0

    def start(self) -> None:
        """Begin to beat."""
        self._thread = threading.Thread(target=self._work, name="agentlightning-heart", daemon=True)
        contextvars.Context().run(self._thread.start)

    def stop(self, *, wait: bool = True) -> None:
        """Send the last report and end.

        Args:
            wait: until it is sent; not worth it where the store stays away.
        """
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and wait:
            thread.join()

    def add(self, execution: Execution) -> None:
        """Renew this attempt's lease from now on."""
        with self._changed:
            self._running[execution.claim.key] = execution
            self._changed.notify_all()

    def remove(self, execution: Execution) -> None:
        """Leave this attempt's lease alone from now on."""
        with self._changed:
            self._running.pop(execution.claim.key, None)

    def executions(self) -> list[Execution]:
        """The attempts under way."""
        with self._changed:
            return list(self._running.values())

    def _work(self) -> None:
        me = threading.current_thread()
        while self._thread is me:
            self._beat()
            self._rest(me)
        self._beat()

    def _rest(self, me: threading.Thread) -> None:
        """Sleep until the next beat is due; an attempt with a short lease may make that earlier."""
        beaten = time.monotonic()
        with self._changed:
            while self._thread is me and (left := beaten + self._pause() - time.monotonic()) > 0:
                self._changed.wait(left)

    def _pause(self) -> float:
        leases = [execution.claim.rollout.config.lease_s for execution in self._running.values()]
        return min([_LONGEST_PAUSE_S, *(lease / _BEATS_A_LEASE for lease in leases)])

    def _beat(self) -> None:
        with self._changed:
            running = dict(self._running)
        try:
            orders = self._store.heartbeat(self._worker_id, list(running), self._report())
        except StoreUnavailable as error:
            self.failed_beats += 1
            level = logging.DEBUG if self._is_away else logging.WARNING  # once an absence
            logger.log(level, "a heartbeat did not reach the store: %s", error)
            self._is_away = True
            return
        except Exception:  # counted in the report; a thread that died here would lose every lease
            self.failed_beats += 1
            logger.exception("a heartbeat failed")
            return
        self._is_away = False
        for key, order in orders.items():
            if order is not Order.CONTINUE and key in running:
                running[key].give_up("cancelled" if order is Order.CANCEL else "lost")
