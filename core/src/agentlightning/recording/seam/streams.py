"""Takes the reply of a call, whole or while the agent reads it; the agent sees every byte unchanged."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from agentlightning.llm_api import error_line
from agentlightning.llm_api.replies import read_body
from agentlightning.llm_api.streams import LAST_WORDS, StreamedReply
from agentlightning.recording.guard import never_raises
from agentlightning.recording.open_call import Heard, OpenCall
from agentlightning.records import Api

Decode: TypeAlias = Callable[[bytes], bytes]

_LEFT: Final = "the reply was not read to its end"
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")


def received(call: OpenCall, response: Any, *, retries: int = 0) -> None:
    """Take a good ``response`` (of httpx or httpx2) to ``call``: record it, or listen to it."""
    call.answers()
    if call.outgoing.by_endpoint:
        call.replied(lambda: Heard(None))
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

    The bytes are only kept here. What they say is read when the record is made, in another thread.

    Attributes:
        pulling: bytes are being fetched this moment, so a ``close`` is the library's own, at the end.
    """

    def __init__(self, call: OpenCall, *, retries: int, events: bool) -> None:
        self.pulling = False
        self._call = call
        self._retries = retries
        self._events = events
        self._last_word = LAST_WORDS[call.api] if events else None
        self._recorded = False
        self._pieces: list[bytes] = []
        call.settle = self.stop

    def feed(self, piece: bytes) -> None:
        if not self._recorded:
            self._pieces.append(piece)
        last = self._last_word
        if last is not None and last.search(piece) and piece.endswith(_EVENT_ENDS):
            self._record(None)  # before the agent has its last event, and may leave

    @never_raises(lambda: None)
    def end(self) -> None:
        """All bytes have passed."""
        self._record("the stream ended before the reply was complete", ended=True)

    @never_raises(lambda: None)
    def stop(self, why: BaseException | str = _LEFT) -> None:
        """No more bytes will be read, for a fault or because the agent leaves early."""
        self._record(why if isinstance(why, str) else error_line(why))

    def _record(self, unless_complete: str | None, *, ended: bool = False) -> None:
        if self._recorded:
            return
        self._recorded, content = True, b"".join(self._pieces)
        self._pieces.clear()
        api, choices = self._call.api, self._call.choices
        if self._events:
            read = partial(_heard_of_events, api, choices, content, unless_complete, ended=ended)
        else:
            read = partial(_heard_of_whole, content, None if ended else unless_complete)
        self._call.replied(read, retries=self._retries)


def _heard_of_whole(content: bytes, cut_short: str | None) -> Heard:
    if cut_short is not None:
        return Heard(None, complete=False, error=cut_short)
    body, error = read_body(content)
    return Heard(body, error=error)


def _heard_of_events(
    api: Api, choices: int, content: bytes, unless_complete: str | None, *, ended: bool
) -> Heard:
    reply = StreamedReply(api, choices=choices)
    reply.feed(content)
    if ended:
        reply.end()
    error = reply.problem or (None if reply.complete else unless_complete)
    return Heard(reply.body(), complete=reply.complete, error=error)


def _listen_to(response: Any, tap: _Tap) -> None:
    """Tap every way to read ``response``: by bytes, which text, lines and ``read`` stand on, and raw.

    Reading by bytes reads raw beneath, which is then not tapped again: it happens while pulling.
    """
    weakref.finalize(response, tap.stop).atexit = False
    close_sync, close_async = _method(response, "close"), _method(response, "aclose")
    encoding = response.headers.get("content-encoding", "")

    def close() -> None:
        if not tap.pulling:
            tap.stop()
        close_sync()

    async def aclose() -> None:
        if not tap.pulling:
            tap.stop()
        closing = close_async()
        if closing is not None:
            await closing

    def tapped(name: str, listen: Any, encoding: str = "") -> Any:
        pieces_of = _method(response, name)

        def pieces(*args: Any, **kwargs: Any) -> Any:
            found = pieces_of(*args, **kwargs)
            return found if tap.pulling else listen(tap, found, _decoder(encoding))

        return pieces

    response.iter_bytes = tapped("iter_bytes", _listen)
    response.aiter_bytes = tapped("aiter_bytes", _listen_async)
    response.iter_raw = tapped("iter_raw", _listen, encoding)
    response.aiter_raw = tapped("aiter_raw", _listen_async, encoding)
    response.close, response.aclose = close, aclose


def _method(response: Any, name: str) -> Callable[..., Any]:
    """A method of ``response`` as it is now, without holding the response.

    One that held itself would be closed by the garbage collector only, long after it was dropped. A
    response that the collector is taking apart already is gone by the time its reader, taken apart with
    it, wants to close it: then there is nothing to call, and the result is None.
    """
    replaced: Callable[..., Any] | None = vars(response).get(name)
    if replaced is not None:
        return replaced
    method, held = getattr(type(response), name), weakref.ref(response)

    def call(*args: Any, **kwargs: Any) -> Any:
        alive = held()
        return None if alive is None else method(alive, *args, **kwargs)

    return call


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
