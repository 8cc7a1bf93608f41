"""The store that lives in this process and ends with it: ``memory://``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from msgspec.structs import replace

from agentlightning.errors import ConfigError, StoreUnavailable
from agentlightning.records import JSON, Rollout, Run, from_json, to_json
from agentlightning.store.backend import TableStore
from agentlightning.store.memory_tables import MemoryTables
from agentlightning.store.tables import Tables
from agentlightning.store.tokens import new_secret

_PLAIN = frozenset({type(None), bool, int, float, str})


class MemoryStore(TableStore):
    """Keeps everything in this process, under one lock.

    Args:
        url: ``memory://``; every opening is a new, empty store.
        clock: the time in seconds since the epoch; by default one that does not jump.
    """

    def __init__(self, url: str = "memory://", *, clock: Callable[[], float] | None = None) -> None:
        if url != "memory://":
            raise ConfigError(
                f"the store {url!r} is not memory://; a store in memory has no name and no options"
            )
        super().__init__(url, new_secret(), clock=clock)
        self._lock = threading.RLock()
        self._tables = MemoryTables()
        self._process = os.getpid()
        self._is_closed = False

    def close(self) -> None:
        """Refuse further calls; what was stored is gone with the object."""
        self._is_closed = True
        self.watchers.notify_all()

    @contextmanager
    def _reading(self) -> Iterator[Tables]:
        with self._lock:
            self._check_usable()
            yield self._tables

    @contextmanager
    def _writing(self) -> Iterator[Tables]:
        with self._lock:
            self._check_usable()
            self._tables.changes = set()
            yield self._tables
            changes = self._tables.changes
        if changes:
            self.watchers.notify(changes)

    def _own(self, rollouts: list[Rollout]) -> list[Rollout]:
        return [_copied(rollout) for rollout in rollouts]

    def _own_run(self, run: Run) -> Run:
        return replace(run, config=_copy(run.config)) if run.config else run

    def _check_usable(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store memory:// was closed")
        if os.getpid() != self._process:
            self._refuse_other_process()

    def __reduce__(self) -> NoReturn:
        self._refuse_other_process()

    def _refuse_other_process(self) -> NoReturn:
        raise StoreUnavailable(
            "memory:// is a store of one process, and another one would get a copy that nobody "
            "reads; use sqlite:///agentlightning.db, or the thread executor"
        )


def _copied(rollout: Rollout) -> Rollout:
    """A rollout whose inside the caller may change: an agent may well write into its task."""
    changed = {
        name: _copy(value)
        for name in ("input", "output", "metadata")
        if type(value := getattr(rollout, name)) not in _PLAIN and value
    }
    return replace(rollout, **changed) if changed else rollout


def _copy(value: JSON) -> JSON:
    return from_json(to_json(value), JSON)
