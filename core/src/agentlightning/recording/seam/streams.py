"""Listens to a streamed reply while the agent reads it; the agent sees every byte unchanged."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agentlightning.llm_api.replies import read_body
from agentlightning.llm_api.streams import StreamedReply
from agentlightning.recording.guard import never_raises
from agentlightning.recording.open_call import OpenCall


class _Tap:
    """What has passed of one reply; records the call once, as soon as it is known how it ended.

    Attributes:
        pulling: bytes are being fetched this moment, so a ``close`` is the library's own, at the end.
    """

    def __init__(self, call: OpenCall, *, retries: int, events: bool) -> None:
        self.pulling = False
        self._call = call
        self._retries = retries
        self._reply = StreamedReply(call.api) if events else None
        self._bytes = bytearray()

    @never_raises(lambda: None)
    def feed(self, piece: bytes) -> None:
        if self._reply is None:
            self._bytes += piece
            return
        self._reply.feed(piece)
        if self._reply.finished:  # before the agent has its last event, and may leave
            self._record(None)

    @never_raises(lambda: None)
    def end(self) -> None:
        """All bytes have passed."""
        if self._reply is not None:
            self._reply.end()
            self._record("the stream ended before the reply was complete")
        else:
            body, error = read_body(bytes(self._bytes))
            self._call.replied(body, retries=self._retries, error=error)

    @never_raises(lambda: None)
    def stop(self, why: BaseException | None = None) -> None:
        """No more bytes will be read; ``why`` is the fault that ended it, None for an early leave."""
        told = f"{type(why).__name__}: {why}" if why else "the reply was not read to its end"
        if self._reply is not None:
            self._record(told)
        else:
            self._call.replied(None, retries=self._retries, complete=False, error=told)

    def _record(self, unless_complete: str | None) -> None:
        reply = self._reply
        if reply is not None:
            error = reply.problem or (None if reply.complete else unless_complete)
            self._call.replied(
                reply.body(), retries=self._retries, complete=reply.complete, error=error
            )


def tap_stream(call: OpenCall, response: Any, *, retries: int) -> None:
    """Listen to ``response`` (of httpx or httpx2), read by bytes, lines or ``read``, or dropped."""
    content_type = response.headers.get("content-type", "")
    events = "event-stream" in content_type or (call.streamed and "json" not in content_type)
    tap = _Tap(call, retries=retries, events=events)
    weakref.finalize(response, tap.stop).atexit = False
    bytes_of, bytes_of_async = response.iter_bytes, response.aiter_bytes
    close_sync, close_async = response.close, response.aclose

    def iter_bytes(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        return _listen(tap, bytes_of(*args, **kwargs))

    def aiter_bytes(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        return _listen_async(tap, bytes_of_async(*args, **kwargs))

    def close() -> None:
        if not tap.pulling:
            tap.stop()
        close_sync()

    async def aclose() -> None:
        if not tap.pulling:
            tap.stop()
        await close_async()

    response.iter_bytes, response.aiter_bytes = iter_bytes, aiter_bytes
    response.close, response.aclose = close, aclose


def _listen(tap: _Tap, pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        while True:
            tap.pulling = True
            try:
                piece = next(pieces, None)
            finally:
                tap.pulling = False
            if piece is None:
                tap.end()
                return
            tap.feed(piece)
            yield piece
    except Exception as error:
        tap.stop(error)
        raise
    finally:
        tap.stop()


async def _listen_async(tap: _Tap, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        while True:
            tap.pulling = True
            try:
                piece = await anext(pieces, None)
            finally:
                tap.pulling = False
            if piece is None:
                tap.end()
                return
            tap.feed(piece)
            yield piece
    except Exception as error:
        tap.stop(error)
        raise
    finally:
        tap.stop()
