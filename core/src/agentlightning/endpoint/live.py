"""Passes a model server's stream on as it comes, and records the call before its end is passed on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from agentlightning.endpoint.asking import for_agent, outgoing
from agentlightning.endpoint.gate import Gate
from agentlightning.endpoint.ledger import Ledger, Try
from agentlightning.endpoint.replies import Answer, failure, response_of
from agentlightning.endpoint.streaming import LAST_EVENT, MEDIA_TYPE
from agentlightning.endpoint.upstream import OverHttp
from agentlightning.errors import Deadline
from agentlightning.llm_api.sse import EventReader, write_event
from agentlightning.llm_api.streams import StreamedReply
from agentlightning.records import JSON

if TYPE_CHECKING:
    import httpx


class LiveStream:
    """The response to one streamed request; counts as under way until its last byte.

    What was passed on cannot be taken back, so a stream that an update aborts is not sent again: it
    is recorded as incomplete.
    """

    def __init__(
        self, this: Try, upstream: OverHttp, gate: Gate, ledger: Ledger, *, pause_s: float
    ) -> None:
        self._this = this
        self._upstream = upstream
        self._gate = gate
        self._ledger = ledger
        self._pause_s = pause_s
        self._reply = StreamedReply("chat", choices=this.ask.choices)
        self._broken: str | None = None
        self._recorded = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the model server and pass on what comes."""
        try:
            async with self._gate.passing(timeout_s=self._pause_s), self._opened() as response:
                if isinstance(response, Answer):
                    await self._refuse(response, scope, receive, send)
                    return
                stream = StreamingResponse(self._events(response), media_type=MEDIA_TYPE)
                try:
                    await stream(scope, receive, send)
                finally:
                    self._record("the client left before the end of the stream")
        except Deadline as error:
            await self._refuse(failure(503, str(error), "paused"), scope, receive, send)

    def _opened(self) -> AbstractAsyncContextManager[httpx.Response | Answer]:
        served = self._this.served
        current = served.current
        self._this.version = current.version
        ids = served.engine.returns_token_ids
        return self._upstream.opened(
            outgoing(self._this.ask, model=current.name, token_ids=ids, stream=True)
        )

    async def _refuse(self, answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
        self._ledger.record(self._this, answer)
        await response_of(answer)(scope, receive, send)

    async def _events(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """What the agent gets. All that follows the end of the last choice waits for the record."""
        import httpx

        ending: list[bytes] = []
        try:
            async for data in _data_of(response.aiter_bytes()):
                passed_on = self._take(data)
                if self._reply.finished:
                    break
                if self._reply.ended:
                    ending.append(passed_on)
                elif passed_on:
                    yield passed_on
        except httpx.HTTPError as error:
            broken = self._upstream.broken(error)
            self._broken = broken.error
            ending.append(write_event(broken.content))
        self._record("the stream ended before the reply did")
        yield b"".join((*ending, LAST_EVENT))

    def _take(self, data: str) -> bytes:
        """Take one event; returns what of it is passed on, all of it if it cannot be read."""
        event = self._reply.take(data)
        return write_event(data.encode()) if event is None else self._shown(event)

    def _shown(self, event: dict[str, JSON]) -> bytes:
        ask = self._this.ask
        shown = for_agent(event, ask)
        if not ask.wants_usage:
            shown.pop("usage", None)
            if event.get("usage") is not None and not event.get("choices"):
                return b""
        return write_event(msgspec.json.encode(shown))

    def _record(self, unless_finished: str) -> None:
        """Write the record, once; ``unless_finished`` says what is wrong with a reply in the middle."""
        if self._recorded:
            return
        self._recorded = True
        unfinished = None if self._reply.ended else unless_finished
        problem = self._broken or self._reply.problem or unfinished
        reply = self._reply.body() or {}
        self._ledger.record(self._this, Answer(200, reply), complete=problem is None, error=problem)
        if problem is None:
            self._this.call.reply = Answer(200, for_agent(reply, self._this.ask))


async def _data_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    reader = EventReader()
    async for chunk in chunks:
        for data in reader.feed(chunk):
            yield data
    for data in reader.end():
        yield data
