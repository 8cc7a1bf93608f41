"""Takes the reply of a call, whole or while the agent reads it; the agent sees every byte unchanged."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, TypeAlias

from agentlightning.llm_api import error_line
from agentlightning.llm_api.replies import read_body
from agentlightning.llm_api.streams import StreamedReply
from agentlightning.recording.guard import never_raises
from agentlightning.recording.open_call import OpenCall

Decode: TypeAlias = Callable[[bytes], bytes]

_LEFT: Final = "the reply was not read to its end"


def received(call: OpenCall, response: Any, *, retries: int = 0) -> None:
    """Take a good ``response`` (of httpx or httpx2) to ``call``: record it, or listen to it."""
    call.answers()
    if call.outgoing.by_endpoint:
        call.replied(None)
        return
    content_type = response.headers.get("content-type", "")
    events = "event-stream" in content_type or (call.streamed and "json" not in content_type)
    tap = _Tap(call, retries=retries, events=events)
    if response.is_stream_consumed or response.is_closed:
        tap.feed(response.content)
        tap.end()
    else:
        _listen_to(response, tap)


class _Tap:
    """What has passed of one reply; records the call once, as soon as it is known how it ended.

    Attributes:
        pulling: bytes are being fetched this moment, so a ``close`` is the library's own, at the end.
    """

    def __init__(self, call: OpenCall, *, retries: int, events: bool) -> None:
        self.pulling = False
        self._call = call
        self._retries = retries
        self._reply = StreamedReply(call.api, choices=call.choices) if events else None
        self._bytes = bytearray()
        call.settle = self.stop

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
    def stop(self, why: BaseException | str = _LEFT) -> None:
        """No more bytes will be read, for a fault or because the agent leaves early."""
        told = why if isinstance(why, str) else error_line(why)
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


def _listen_to(response: Any, tap: _Tap) -> None:
    """Tap every way to read ``response``: by bytes, which text, lines and ``read`` stand on, and raw.

    Reading by bytes reads raw beneath, which is then not tapped again: it happens while pulling.
    """
    weakref.finalize(response, tap.stop).atexit = False
    close_sync, close_async = response.close, response.aclose
    encoding = response.headers.get("content-encoding", "")

    def close() -> None:
        if not tap.pulling:
            tap.stop()
        close_sync()

    async def aclose() -> None:
        if not tap.pulling:
            tap.stop()
        await close_async()

    def tapped(pieces_of: Any, listen: Any, encoding: str = "") -> Any:
        def pieces(*args: Any, **kwargs: Any) -> Any:
            found = pieces_of(*args, **kwargs)
            return found if tap.pulling else listen(tap, found, _decoder(encoding))

        return pieces

    response.iter_bytes = tapped(response.iter_bytes, _listen)
    response.aiter_bytes = tapped(response.aiter_bytes, _listen_async)
    response.iter_raw = tapped(response.iter_raw, _listen, encoding)
    response.aiter_raw = tapped(response.aiter_raw, _listen_async, encoding)
    response.close, response.aclose = close, aclose


def _listen(tap: _Tap, pieces: Iterator[bytes], decode: Decode | None) -> Iterator[bytes]:
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
            _feed(tap, piece, decode)
            yield piece
    except GeneratorExit:
        raise
    except BaseException as error:
        tap.stop(error)
        raise
    finally:
        tap.stop()


async def _listen_async(
    tap: _Tap, pieces: AsyncIterator[bytes], decode: Decode | None
) -> AsyncIterator[bytes]:
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
            _feed(tap, piece, decode)
            yield piece
    except GeneratorExit:
        raise
    except BaseException as error:
        tap.stop(error)
        raise
    finally:
        tap.stop()


@never_raises(lambda: None)
def _feed(tap: _Tap, piece: bytes, decode: Decode | None) -> None:
    if decode is None:
        tap.stop("the agent reads the reply compressed, in a way that cannot be read along")
    else:
        tap.feed(decode(piece))


def _decoder(encoding: str) -> Decode | None:
    """What undoes a content encoding piece by piece; None for one that nothing here knows."""
    if encoding in {"", "identity"}:
        return bytes
    if encoding in {"gzip", "deflate"}:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
    return None
