"""The events of a Messages stream, made from the chunks of a chat completion."""

# ruff: noqa: D102  (Dialect and Events say what each method does)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agentlightning.endpoint.dialects.base import (
    Events,
    calls_of,
    choices_of,
    function_of,
    reasoning_of,
)
from agentlightning.endpoint.dialects.errors import error_body
from agentlightning.endpoint.replies import Answer
from agentlightning.llm_api.sse import write_named_event
from agentlightning.records import JSON

if TYPE_CHECKING:
    from agentlightning.endpoint.dialects.messages import MessagesDialect

_STARTS: Final[dict[object, dict[str, JSON]]] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}


class MessagesEvents(Events):
    """One block after the other, as the protocol wants it.

    Only one block is open; pieces of another that come meanwhile (tool calls may alternate, text may
    follow a call) wait until that one is closed: the next call's first piece does not close the last.
    """

    def __init__(self, dialect: MessagesDialect) -> None:
        self._dialect = dialect
        self._begun = False
        self._open: object = None
        self._index = -1
        self._calls: dict[int, dict[str, Any]] = {}
        self._waiting: dict[object, list[str]] = {}

    def piece(self, chunk: Mapping[str, Any]) -> list[bytes]:
        events = self._beginning(chunk.get("model"))
        for choice in choices_of(chunk):
            if not choice.get("index"):
                delta = choice.get("delta")
                events += self._grow(delta if isinstance(delta, dict) else {})
        return events

    def end(self, reply: Mapping[str, Any]) -> list[bytes]:
        events = self._beginning(reply.get("model"))
        events += self._close()
        for key, texts in self._waiting.items():
            events += self._begin(key)
            events += [self._delta(key, text) for text in texts]
            events += self._close()
        ending = {name: reply.get(name) for name in ("stop_reason", "stop_sequence")}
        events.append(self._event("message_delta", delta=ending, usage=reply.get("usage")))
        return [*events, self._event("message_stop")]

    def failed(self, answer: Answer) -> list[bytes]:
        error = error_body("messages", answer)["error"]
        return [*self._beginning(None), self._event("error", error=error)]

    def _beginning(self, model: object) -> list[bytes]:
        if self._begun:
            return []
        self._begun = True
        return [self._event("message_start", message=self._dialect.shell(model))]

    def _grow(self, delta: Mapping[str, Any]) -> Iterator[bytes]:
        if thought := reasoning_of(delta):
            yield from self._say("thinking", thought)
        for name in ("content", "refusal"):
            if isinstance(text := delta.get(name), str) and text:
                yield from self._say("text", text)
        for position, call in enumerate(calls_of(delta)):
            index = call.get("index")
            yield from self._call(index if isinstance(index, int) else position, call)

    def _call(self, key: int, call: Mapping[str, Any]) -> Iterator[bytes]:
        self._calls.setdefault(key, self._dialect.tool_block(key, call))
        yield from self._say(key, function_of(call)[1])

    def _say(self, key: object, text: str) -> Iterator[bytes]:
        """Pass on a piece of the open block; thoughts and text give way to what follows them."""
        if key != self._open:
            if isinstance(self._open, int) or (key == "thinking" and self._open == "text"):
                self._waiting.setdefault(key, []).append(text)
                return
            yield from self._close()
            yield from self._begin(key)
        if text:
            yield self._delta(key, text)

    def _begin(self, key: object) -> list[bytes]:
        self._open = key
        self._index += 1
        block = self._calls[key] if isinstance(key, int) else _STARTS[key]
        return [self._event("content_block_start", index=self._index, content_block=block)]

    def _close(self) -> list[bytes]:
        if self._open is None:
            return []
        self._open = None
        return [self._event("content_block_stop", index=self._index)]

    def _delta(self, key: object, text: str) -> bytes:
        if isinstance(key, int):
            delta = {"type": "input_json_delta", "partial_json": text}
        elif key == "thinking":
            delta = {"type": "thinking_delta", "thinking": text}
        else:
            delta = {"type": "text_delta", "text": text}
        return self._event("content_block_delta", index=self._index, delta=delta)

    def _event(self, kind: str, **fields: JSON) -> bytes:
        return write_named_event(kind, msgspec.json.encode({"type": kind, **fields}))
