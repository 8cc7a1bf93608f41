"""HTTP responses that listen to one try: each hears it from the beginning, whenever it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

from starlette.types import Receive


class Listeners:
    """Those who wait for a reply, and what there is of a stream so far.

    Args:
        retry_s: seconds to wait for another listener when the last one left before anything was given.
        give_up: called when nobody listens any more.
    """

    def __init__(self, retry_s: float, give_up: Callable[[], None]) -> None:
        self.pieces: list[bytes] = []
        self._retry_s = retry_s
        self._give_up = give_up
        self._count = 0
        self._present = asyncio.Event()
        self._ended = asyncio.Event()
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def joined(self, receive: Receive) -> Iterator[None]:
        """Listen while the body runs, or until the client of ``receive`` leaves."""
        self._count += 1
        self._present.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = asyncio.create_task(_client_leaves(receive))
        left.add_done_callback(lambda _: self._leave())
        try:
            yield
        finally:
            left.cancel()

    def give(self, pieces: Sequence[bytes]) -> None:
        """Give out the next pieces of a stream."""
        self.pieces += pieces
        self._tell()

    def end(self) -> None:
        """Nothing more will come."""
        self._ended.set()
        self._tell()

    async def someone(self) -> None:
        """Wait until anybody listens."""
        await self._present.wait()

    async def something_came(self) -> None:
        """Wait for the first piece, or the end."""
        while not (self.pieces or self._ended.is_set()):
            await self._news.wait()

    async def all_came(self) -> None:
        """Wait for the end."""
        await self._ended.wait()

    async def stream(self) -> AsyncIterator[bytes]:
        """All pieces, from the first."""
        at = 0
        while True:
            if at < len(self.pieces):
                piece, at = b"".join(self.pieces[at:]), len(self.pieces)
                yield piece
            elif self._ended.is_set():
                return
            else:
                await self._news.wait()

    def _leave(self) -> None:
        self._count -= 1
        if self._count or self._ended.is_set():
            return
        self._present.clear()
        if self.pieces:  # no client asks again for what it has begun to read
            self._give_up()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._retry_s, self._give_up)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
