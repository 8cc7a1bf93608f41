"""Requests that are held back until something happens; each costs a coroutine and no thread."""

from __future__ import annotations

import asyncio
import math
from typing import Any, TypeVar

from starlette.types import Receive

from agentlightning.errors import BadValue
from agentlightning.server.store_api.answers import ClientLeft
from agentlightning.store.http.operations import MAX_WAIT_S

T = TypeVar("T")


class Held:
    """The requests a server holds back; used on its event loop only."""

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()
        self._released = False

    async def until(self, future: asyncio.Future[T], wait_s: float, receive: Receive) -> T | None:
        """The result of ``future``, which is cancelled on the way out.

        Returns:
            None when the time is over or the server is about to stop.

        Raises:
            ClientLeft: nobody waits for the answer any more.
        """
        released = asyncio.get_running_loop().create_future()
        gone = asyncio.ensure_future(_until_gone(receive))
        self._futures.add(released)
        try:
            if not self._released:
                waits: set[asyncio.Future[Any]] = {future, gone, released}
                await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if gone.done():
                raise ClientLeft
            return None
        finally:
            self._futures.discard(released)
            future.cancel()
            gone.cancel()

    def release(self) -> None:
        """Let all requests return at once, and every later one too: the server is about to stop."""
        self._released = True
        for future in self._futures:
            if not future.done():
                future.set_result(None)


def held_for(wait_s: float) -> float:
    """How long a request is held that asks for ``wait_s`` seconds."""
    if not 0 <= wait_s < math.inf:
        raise BadValue(f"wait_s is {wait_s}; expected seconds from 0 up")
    return min(wait_s, MAX_WAIT_S)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
