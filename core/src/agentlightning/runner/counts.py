"""What a runner tells about itself: kept small however long it runs."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections import Counter

from agentlightning.recording.context import AttemptLife
from agentlightning.records import JSON


class Counts:
    """Counts attempts by how they ended, and what came after an end.

    An agent's threads may still call a model long after their attempt is over. Those calls are counted
    in the attempt's life, which lives as long as such a thread; its counts are added up when it goes.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finaliser may run in the middle of any other call
        self._counts: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._lives: weakref.WeakSet[AttemptLife] = weakref.WeakSet()

    def add(self, what: str, number: int = 1) -> None:
        """Count ``what``."""
        with self._lock:
            self._counts[what] += number

    def follow(self, life: AttemptLife) -> None:
        """Count what comes too late for this attempt."""
        with self._lock:
            self._lives.add(life)
        weakref.finalize(life, self._gone, life.late).atexit = False

    def report(self) -> dict[str, JSON]:
        """All counts, as a heartbeat's report."""
        with self._lock:
            # Copies, since an agent's threads count there meanwhile.
            late = sum((life.late.copy() for life in self._lives), start=self._late.copy())
            return {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                **self._counts,
                "late": dict(late),
            }

    def _gone(self, late: Counter[str]) -> None:
        with self._lock:
            self._late.update(late)
