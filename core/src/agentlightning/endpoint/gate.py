"""Holds requests back while weights change, and waits for those that are under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from agentlightning.errors import Deadline


class Gate:
    """Requests pass on the server's event loop; any other thread may close it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = 0
        self._inside = 0
        self._waiting: list[asyncio.Future[None]] = []
        self.closings = 0
        """How often the gate was closed: a request that sees it grow was overtaken by an update."""

    @asynccontextmanager
    async def passing(self, *, timeout_s: float) -> AsyncIterator[None]:
        """Wait until the gate is open, then count as under way.

        Raises:
            Deadline: it stayed closed for ``timeout_s`` seconds.
        """
        await self._enter(timeout_s)
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    async def _enter(self, timeout_s: float) -> None:
        opening = self._enter_or_queue()
        if opening is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                while opening is not None:
                    await opening
                    opening = self._enter_or_queue()
        except TimeoutError as error:
            raise Deadline(
                f"requests were held back for a weight update for more than {timeout_s:g} s"
            ) from error

    def _enter_or_queue(self) -> asyncio.Future[None] | None:
        with self._changed:
            if not self._closed:
                self._inside += 1
                return None
            opening = asyncio.get_running_loop().create_future()
            self._waiting.append(opening)
            return opening

    @contextmanager
    def closed(self, *, drain_s: float) -> Iterator[None]:
        """Let nobody through; the body runs when nobody is under way any more.

        Must not be entered on the event loop itself: requests could not finish while it waits.

        Raises:
            Deadline: some were still under way after ``drain_s`` seconds. The gate is open again.
        """
        with self._changed:
            self._closed += 1
            self.closings += 1
        try:
            self._drain(drain_s)
            yield
        finally:
            self._reopen()

    def _drain(self, drain_s: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._inside == 0, drain_s):
                raise Deadline(
                    f"{self._inside} LLM calls were still under way {drain_s:g} s after new ones were "
                    f"held back; allow more time, or limit the length of replies"
                )

    def _reopen(self) -> None:
        with self._changed:
            self._closed -= 1
            if self._closed:
                return
            waiting, self._waiting = self._waiting, []
        for opening in waiting:
            loop = opening.get_loop()
            if not loop.is_closed():  # a server that was stopped meanwhile took its requests along
                loop.call_soon_threadsafe(_let_in, opening)


def _let_in(opening: asyncio.Future[None]) -> None:
    if not opening.done():
        opening.set_result(None)
