"""The store's wake-ups on the event loop: one subscription a kind of change, however many listen."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from agentlightning.store import Change, Store

_KEPT: Final = 256
"""Subscriptions that stay while nobody uses them, so that a client that asks again finds its own."""

Which: TypeAlias = tuple[str | None, Change | None]


class Bell:
    """Rings whenever something of one kind may have changed in the store.

    ``count`` says how often it rang. Whoever looks into the store takes it first, looks, and then
    waits for it to be passed: a change during the look is not missed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.id = secrets.token_hex(8)
        self.count = 0
        self.users = 0
        self.forget: Callable[[], None] = lambda: None
        self._loop = loop
        self._listening: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Wake whoever listens; from any thread."""
        if not self._loop.is_closed():  # a server that was stopped has nobody waiting
            self._loop.call_soon_threadsafe(self._rung)

    def passed(self, count: int) -> asyncio.Future[None]:
        """A future that is done as soon as it has rung more than ``count`` times."""
        heard = self._loop.create_future()
        if self.count > count:
            heard.set_result(None)
        else:
            self._listening.add(heard)
            heard.add_done_callback(self._listening.discard)
        return heard

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep it watching the store, also while its listener looks into the store."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1

    def _rung(self) -> None:
        self.count += 1
        for heard in list(self._listening):
            if not heard.done():
                heard.set_result(None)


class Bells:
    """The bells of one server.

    Args:
        store: rings them.
        loop: where they are heard.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._bells: dict[Which, Bell] = {}
        self._lock = threading.Lock()

    def known(self, which: Which) -> Bell | None:
        """The bell, if the store is watched for it already."""
        return self._bells.get(which)

    def get(self, which: Which) -> Bell:
        """The bell for a run and a change; watching may take the store a moment, so not on the loop.

        The run need not be there yet: it may be imported.
        """
        with self._lock:
            bell = self._bells.pop(which, None)
            if bell is None:
                run_id, change = which
                bell = Bell(self._loop)
                bell.forget = self._store.watch(run_id, bell.ring, on=change)
            self._bells[which] = bell  # the latest last
            for other in [w for w, b in self._bells.items() if not b.users][:-_KEPT]:
                self._bells.pop(other).forget()
            return bell

    def close(self) -> None:
        """Watch no more."""
        with self._lock:
            for bell in self._bells.values():
                bell.forget()
            self._bells.clear()
