"""Who wants to be woken by which changes; shared by the backends."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from agentlightning.store.types import Change

logger = logging.getLogger("agentlightning.store")


class Changed(NamedTuple):
    """One kind of change to one run."""

    run_id: str
    change: Change


class _Watcher(NamedTuple):
    run_id: str | None
    on: Change | None
    wake: Callable[[], None]

    def wants(self, changed: Changed) -> bool:
        return self.run_id in (None, changed.run_id) and self.on in (None, changed.change)


class Watchers:
    """The callbacks of :meth:`Store.watch`, called after the change is stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: dict[int, _Watcher] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._watchers)

    def add(
        self, run_id: str | None, on: Change | None, wake: Callable[[], None]
    ) -> Callable[[], None]:
        """Register ``wake``; the answer removes it again, once or many times."""
        number = next(self._numbers)
        with self._lock:
            self._watchers[number] = _Watcher(run_id, on, wake)

        def remove() -> None:
            with self._lock:
                self._watchers.pop(number, None)

        return remove

    def notify(self, changes: Iterable[Changed]) -> None:
        """Wake whoever wants one of ``changes``, each once."""
        if not self._watchers:
            return
        happened = tuple(changes)
        with self._lock:
            watchers = list(self._watchers.values())
        for watcher in watchers:
            if any(watcher.wants(changed) for changed in happened):
                _wake(watcher.wake)

    def notify_all(self) -> None:
        """Wake everybody."""
        with self._lock:
            watchers = list(self._watchers.values())
        for watcher in watchers:
            _wake(watcher.wake)


def _wake(wake: Callable[[], None]) -> None:
    try:
        wake()
    except Exception:  # the change is stored; one bad callback must not fail it or keep others asleep
        logger.exception("a callback given to Store.watch raised; it must only wake its waiter")
