"""Agents that go on after their attempt is over: their slot stays taken, and somebody says so."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Final

from agentlightning.executor import EXIT_STUCK, in_worker_process
from agentlightning.runner.execution import Execution

logger = logging.getLogger("agentlightning.runner")

GRACE_S: Final = 10.0
"""How long all slots of a process may be taken by such agents before something is done."""
_LOOK_S: Final = 0.25


class Overdue:
    """The agents that are waited for although nobody wants their result any more.

    A thread can't be killed. When such agents hold every slot for longer than ``grace_s``, a process
    of the process executor ends itself and is replaced; elsewhere an error is logged.
    """

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._since: dict[Execution, float] = {}
        self._abandoned = threading.Event()
        self._reported = False

    @property
    def count(self) -> int:
        """How many such agents there are, those that nobody waits for any longer among them."""
        with self._lock:
            return sum(not execution.at_rest.is_set() for execution in self._since)

    def abandon(self) -> None:
        """Wait for none of them any longer: the runner ends."""
        self._abandoned.set()

    def wait_for(self, execution: Execution, *, of: int) -> None:
        """Hold the slot until the agent is really done.

        Args:
            execution: the agent's work on an attempt that is over.
            of: how many slots this process has.
        """
        if execution.at_rest.is_set():
            return
        with self._lock:
            self._since[execution] = time.monotonic()
        if self._abandoned.is_set():
            return
        logger.warning(
            "the agent of %s goes on although that is over; its slot is taken until it returns",
            execution,
        )
        while not execution.at_rest.wait(min(_LOOK_S, self._grace_s)) and not self._abandoned.is_set():
            self._check(of)
        with self._lock:
            if execution.at_rest.is_set():
                del self._since[execution]
            self._reported = False

    def _check(self, slots: int) -> None:
        with self._lock:
            latest = max(self._since.values())
            stuck = len(self._since) >= slots and time.monotonic() - latest > self._grace_s
            if not stuck or self._reported:
                return
            self._reported = True
        if in_worker_process():
            logger.error("all %d agents of this process hang; it ends and is replaced", slots)
            os._exit(EXIT_STUCK)
        logger.error(
            "all %d slots are taken by agents that do not return after their time limit, so nothing "
            "else runs; the executor 'processes' can end such agents",
            slots,
        )
