"""Noticing what other processes wrote, while somebody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from agentlightning.errors import StoreError
from agentlightning.store.watching import Changed, Watchers

logger = logging.getLogger("agentlightning.store.sqlite")

INTERVAL_S: Final = 0.02
"""SQLite tells nobody about a commit; asking costs a few microseconds."""


class ForeignChanges:
    """Wakes watchers for changes that other processes committed.

    A thread looks while anybody watches, and ends when nobody does.

    Args:
        watchers: whom to wake.
        look: how often each kind of change has happened in the file, or None if no other process has
            written since the last look.
    """

    def __init__(self, watchers: Watchers, look: Callable[[], Mapping[Changed, int] | None]) -> None:
        self._watchers = watchers
        self._look = look
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._seen: Mapping[Changed, int] = {}

    def ensure_looking(self) -> None:
        """Start the thread unless it runs; changes from now on are noticed."""
        with self._lock:
            if self._thread is not None or self._stopped.is_set():
                return
            self._seen = self._look() or self._seen
            self._thread = threading.Thread(
                target=self._look_on, name="agentlightning-sqlite-watch", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread and start no other."""
        self._stopped.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _look_on(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            with self._lock:
                if not len(self._watchers):
                    self._thread = None
                    return
            self._look_once()

    def _look_once(self) -> None:
        try:
            counts = self._look()
        except StoreError:  # the waiters get it themselves when they look
            logger.exception("cannot see whether other processes wrote to the store")
            self._watchers.notify_all()
            return
        if counts is not None:
            changed = [name for name, count in counts.items() if count != self._seen.get(name, 0)]
            self._seen = counts
            self._watchers.notify(changed)
