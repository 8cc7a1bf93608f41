"""One try of a call: the engine is asked in a task of its own, and HTTP responses listen to it.

A client that loses its connection does not end the try: its next one listens to the same. A try that
nobody listens to any more is given up, and the engine's work with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from starlette.types import Receive, Scope, Send

from agentlightning.endpoint.chunks import chunks_of
from agentlightning.endpoint.dialects import Dialect
from agentlightning.endpoint.dialects.base import choices_of
from agentlightning.endpoint.dialects.errors import error_response
from agentlightning.endpoint.engine_call import EngineCall
from agentlightning.endpoint.gate import Gate
from agentlightning.endpoint.ledger import Ledger, Try
from agentlightning.endpoint.listening import Listeners
from agentlightning.endpoint.replies import Answer, failure, json_response

_logger = logging.getLogger("agentlightning.endpoint")

_LEFT: Final = "the client left before the end of the reply"
_STOPPED: Final = "the endpoint was stopped before the end of the reply"
_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


class Exchange:
    """The try under way, and what it gave.

    Args:
        this: the try.
        gate: passed on the way to the engine.
        ledger: told how the try ended, before the last byte of the reply is given out.
        pause_s: seconds to wait at the gate at most.
        retry_s: seconds that a try goes on for a client that left before it heard anything.
        ended: called once at the end, with whether there is a reply to give again.

    Attributes:
        size: bytes that are kept of the reply.
        is_over: nothing more will come.
    """

    def __init__(
        self,
        this: Try,
        gate: Gate,
        ledger: Ledger,
        *,
        pause_s: float,
        retry_s: float,
        ended: Callable[[Exchange, bool], None],
    ) -> None:
        self.size = 0
        self.is_over = False
        self._this = this
        self._ledger = ledger
        self._ended = ended
        self._answer: Answer | None = None
        self._left = False
        self._listeners = Listeners(retry_s, self._give_up)
        self._engine = EngineCall(this, gate, pause_s=pause_s, give=self._listeners.give)
        self._task = asyncio.create_task(self._run())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request with what this try gives, from its beginning."""
        dialect = self._this.ask.dialect
        with self._listeners.joined(receive):
            if dialect.streamed:
                await self._listeners.something_came()
            else:
                await self._listeners.all_came()
            answer = self._answer
            if dialect.streamed and (answer is None or answer.reply is not None):
                await self._stream(send)
            elif answer is not None and answer.reply is not None:
                await json_response(answer.reply)(scope, receive, send)
            elif answer is not None:
                await error_response(dialect.api, answer)(scope, receive, send)

    def stop(self) -> asyncio.Task[None]:
        """End the try, as the endpoint does when it stops; returns what to wait for."""
        self._task.cancel()
        return self._task

    def let_go(self) -> None:
        """Keep the reply no longer; a client that asks again is answered anew."""
        self._this.call.exchange = None

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        async for piece in self._listeners.stream():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _run(self) -> None:
        try:
            answer = await self._engine.run()
            await self._listeners.someone()
        except asyncio.CancelledError:
            answer = self._cut_short(_LEFT if self._left else _STOPPED)
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered and recorded as any other
            answer = _fault_of_ours(error)
        try:
            self._settle(answer)
        except Exception as error:  # noqa: BLE001 - as above: it is the reply that cannot be told
            self._settle(_fault_of_ours(error))
        finally:
            self._listeners.end()

    def _cut_short(self, why: str) -> Answer:
        reply = self._engine.so_far()
        if reply is None:
            return failure(499, why, "client_left") if self._left else failure(503, why, "stopped")
        return Answer(200, reply, error=why, code="client_left" if self._left else "stopped")

    def _settle(self, answer: Answer) -> None:
        """Record the try, then give out the rest of it."""
        dialect, engine = self._this.ask.dialect, self._engine
        if not engine.given and not self._left:
            answer = _usable(answer, dialect)
        rest = self._rest(answer) if dialect.streamed else []
        if answer.reply is not None:
            answer = replace(answer, reply=dialect.reply(answer.reply))
        is_good = self._ledger.record(self._this, answer, given=engine.given)
        if answer.reply is not None:
            shown = dialect.shown(answer.reply)
            answer = replace(answer, reply=shown)
            if is_good:
                dialect.remember(shown)
            if dialect.streamed:
                rest += self._last_events(answer)
        self._finish(answer, rest, is_good=is_good)

    def _rest(self, answer: Answer) -> list[bytes]:
        """What of the stream is still to be given out, but for the last events of a reply."""
        if answer.reply is None:
            return self._engine.events.failed(answer) if self._engine.given else []
        if self._engine.held is not None:
            return self._engine.held
        events = self._engine.events
        return [made for chunk in chunks_of(answer.reply) for made in events.piece(chunk)]

    def _last_events(self, answer: Answer) -> list[bytes]:
        if answer.error is None:
            return self._engine.events.end(answer.reply or {})
        return self._engine.events.failed(failure(502, answer.error, "upstream"))

    def _finish(self, answer: Answer, rest: list[bytes], *, is_good: bool) -> None:
        self._answer = answer
        self.is_over = True
        self._listeners.give(rest)
        self.size = len(answer.content) + sum(map(len, self._listeners.pieces))
        self._listeners.end()
        self._ended(self, is_good)

    def _give_up(self) -> None:
        self._left = True
        self._task.cancel()


def _fault_of_ours(error: Exception) -> Answer:
    _logger.error("the endpoint failed on a request", exc_info=error)
    message = f"the endpoint failed: {type(error).__name__}: {error}"
    return failure(500, message, "endpoint_failed")


def _usable(answer: Answer, dialect: Dialect) -> Answer:
    """A reply that is told in another shape, or that broke off unheard, must be one."""
    if answer.reply is None:
        return answer
    problem = answer.error
    is_told_anew = dialect.streamed or dialect.api != dialect.engine_api
    if problem is None and is_told_anew and not choices_of(answer.reply):
        problem = "the reply of the model server has no choices"
    return answer if problem is None else failure(502, problem, "upstream")
