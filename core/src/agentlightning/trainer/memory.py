"""The peak memory of a run: this process and its children together."""

from __future__ import annotations

import threading

import psutil

SAMPLE_S = 0.5


class MemoryWatch:
    """Samples resident memory in the background.

    psutil's figures are added up over the process tree twice a second: the kernel's own peak of a
    child (``ru_maxrss``) also counts what the parent had when it was spawned.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, name="agl-memory", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        total = self._process.memory_info().rss
        for child in self._process.children(recursive=True):
            try:
                total += child.memory_info().rss
            except psutil.NoSuchProcess:
                continue  # it ended between listing and asking
        self._peak = max(self._peak, total)

    def stop(self) -> float:
        """End the sampling; returns the peak in megabytes (10^6 bytes)."""
        self._stop.set()
        self._thread.join()
        self._sample()
        return self._peak / 1e6
