"""Asks the engine for one try: held back at the gate, sent again after an update, streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from agentlightning.endpoint.asking import outgoing
from agentlightning.endpoint.chunks import says_something
from agentlightning.endpoint.dialects.base import choices_of
from agentlightning.endpoint.gate import Gate
from agentlightning.endpoint.ledger import Try
from agentlightning.endpoint.replies import Answer, failure
from agentlightning.endpoint.upstream import OverHttp
from agentlightning.errors import Deadline
from agentlightning.llm_api.sse import EventReader
from agentlightning.llm_api.streams import StreamedReply
from agentlightning.records import JSON

if TYPE_CHECKING:
    import httpx

_RESENDS: Final = 5
_UNREACHABLE: Final = frozenset({502, 503})


class EngineCall:
    """One request to an engine.

    Args:
        this: the try.
        gate: passed on the way to the engine.
        pause_s: seconds to wait at the gate at most.
        give: takes what of a stream may leave at once.

    Attributes:
        events: the agent's stream.
        held: what of it waits until the call is recorded; None if the engine does not stream.
        given: whether anything has left: it cannot be taken back, nor the request sent again.
    """

    def __init__(
        self, this: Try, gate: Gate, *, pause_s: float, give: Callable[[list[bytes]], None]
    ) -> None:
        self.events = this.ask.dialect.events()
        self.held: list[bytes] | None = None
        self.given = False
        self._this = this
        self._gate = gate
        self._pause_s = pause_s
        self._give = give
        self._whole: Answer | None = None
        self._streamed: StreamedReply | None = None

    async def run(self) -> Answer:
        """The engine's answer; a stream that is cut or unreadable has its ``error``."""
        this = self._this
        try:
            while True:
                async with self._gate.passing(timeout_s=self._pause_s):
                    closings = self._gate.closings
                    answer = self._whole = await self._once()
                overtaken = self._gate.closings != closings
                if self.given or this.resent >= _RESENDS or not _aborted(answer, overtaken=overtaken):
                    return answer
                this.resent += 1
        except Deadline as error:
            return failure(503, str(error), "paused")

    def so_far(self) -> dict[str, JSON] | None:
        """What came of the reply, for a call that ends early."""
        if self._whole is not None:
            return self._whole.reply
        return None if self._streamed is None else self._streamed.body()

    async def _once(self) -> Answer:
        this, served = self._this, self._this.served
        current, upstream, dialect = served.current, served.upstream, this.ask.dialect
        this.version = current.version
        live = dialect.streamed and isinstance(upstream, OverHttp)
        ids = served.engine.returns_token_ids
        body = outgoing(this.ask, model=current.name, token_ids=ids, stream=live)
        if not (live and isinstance(upstream, OverHttp)):
            return await upstream.ask(dialect.engine_api, body)
        async with upstream.opened(dialect.engine_api, body) as response:
            if isinstance(response, Answer):
                return response
            return await self._passed_on(response, upstream)

    async def _passed_on(self, response: httpx.Response, upstream: OverHttp) -> Answer:
        """Pass a stream on; all that follows the end of its last choice is held."""
        import httpx

        dialect = self._this.ask.dialect
        self.events, self.held = dialect.events(), []
        self._streamed = reply = StreamedReply(dialect.engine_api, choices=dialect.choices)
        broken = None
        try:
            async for data in _data_of(response.aiter_bytes()):
                chunk = reply.take(data)
                if reply.finished:
                    break
                made = self.events.unreadable(data) if chunk is None else self.events.piece(chunk)
                self.held += made
                if not reply.ended and (self.given or says_something(chunk)):
                    self._let_out()
        except httpx.HTTPError as error:
            broken = upstream.broken(error).error
        unfinished = None if reply.ended else "the stream ended before the reply did"
        return Answer(200, reply.body() or {}, error=broken or reply.problem or unfinished)

    def _let_out(self) -> None:
        if self.held:
            self._give(self.held)
            self.held, self.given = [], True


def _aborted(answer: Answer, *, overtaken: bool) -> bool:
    """Whether a weight update, and not the request, is why there is no whole reply."""
    if choices := choices_of(answer.reply or {}):
        return any(choice.get("finish_reason") == "abort" for choice in choices)
    return overtaken and answer.status in _UNREACHABLE


async def _data_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    reader = EventReader()
    async for chunk in chunks:
        for data in reader.feed(chunk):
            yield data
    for data in reader.end():
        yield data
