"""The events of a Responses stream, made from the chunks of a chat completion."""

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
from agentlightning.endpoint.dialects.errors import openai_error
from agentlightning.endpoint.replies import Answer
from agentlightning.llm_api.sse import write_named_event
from agentlightning.records import JSON

if TYPE_CHECKING:
    from agentlightning.endpoint.dialects.responses import ResponsesDialect

_DELTAS: Final = {
    "reasoning": "response.reasoning_text.delta",
    "message": "response.output_text.delta",
    "refusal": "response.refusal.delta",
}


class ResponsesEvents(Events):
    """Announces the response, opens an item when its first piece comes, and closes all at the end.

    Several items may be open at once: pieces of tool calls may alternate.
    """

    def __init__(self, dialect: ResponsesDialect) -> None:
        self._dialect = dialect
        self._number = 0
        self._opened: dict[object, int] = {}
        self._refuses = False

    def piece(self, chunk: Mapping[str, Any]) -> list[bytes]:
        events = self._beginning()
        for choice in choices_of(chunk):
            if choice.get("index"):
                continue  # only one reply can be told in this protocol
            delta = choice.get("delta")
            events += self._grow(delta if isinstance(delta, dict) else {})
        return events

    def end(self, reply: Mapping[str, Any]) -> list[bytes]:
        events = self._beginning()
        for place, item in enumerate(reply.get("output") or ()):
            key = self._key_of(item)
            if key not in self._opened:  # a reply that says nothing still has its empty message
                events += self._open(key)
            events += self._close(self._opened.get(key, place), item)
        kind = "response.incomplete" if reply.get("status") == "incomplete" else "response.completed"
        return [*events, self._event(kind, response=dict(reply))]

    def failed(self, answer: Answer) -> list[bytes]:
        # As the API itself sends it: SDKs raise for `error`, the documents have its parts beside it.
        error = openai_error(answer)
        told = {name: error[name] for name in ("code", "message", "param")}
        return [*self._beginning(), self._event("error", error=error, **told)]

    @property
    def order(self) -> list[object]:
        """The items in the order they were opened."""
        return list(self._opened)

    def _beginning(self) -> list[bytes]:
        if self._number:
            return []
        shell = self._dialect.shell("in_progress")
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=shell) for kind in kinds]

    def _grow(self, delta: Mapping[str, Any]) -> Iterator[bytes]:
        if thought := reasoning_of(delta):
            yield from self._text("reasoning", "reasoning", thought)
        for kind, name in (("message", "content"), ("refusal", "refusal")):
            if isinstance(text := delta.get(name), str) and text:
                self._refuses |= kind == "refusal"
                yield from self._text("message", kind, text)
        for position, call in enumerate(calls_of(delta)):
            index = call.get("index")
            yield from self._call(index if isinstance(index, int) else position, call)

    def _text(self, key: str, kind: str, text: str) -> Iterator[bytes]:
        yield from self._open(key)
        extra: dict[str, JSON] = {"logprobs": []} if kind == "message" else {}
        yield self._event(_DELTAS[kind], **self._place(key), content_index=0, delta=text, **extra)

    def _call(self, key: int, call: Mapping[str, Any]) -> Iterator[bytes]:
        if key not in self._opened:
            yield from self._open(key, call)
        if text := function_of(call)[1]:
            kind = "response.function_call_arguments.delta"
            yield self._event(kind, **self._place(key), delta=text)

    def _open(self, key: object, call: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        if key in self._opened:
            return
        self._opened[key] = place = len(self._opened)
        item = self._empty(key, call or {})
        yield self._event("response.output_item.added", output_index=place, item=item)
        if not isinstance(key, int):
            part = _empty_part("refusal" if self._refuses and key == "message" else str(key))
            kind = "response.content_part.added"
            yield self._event(kind, **self._place(key), content_index=0, part=part)

    def _empty(self, key: object, call: Mapping[str, Any]) -> dict[str, JSON]:
        if isinstance(key, int):
            item = self._dialect.call_item(key, call)
            return {**item, "arguments": "", "status": "in_progress"}
        if key == "reasoning":
            return self._dialect.reasoning_item("", "in_progress")
        return {**self._dialect.message_item(""), "content": [], "status": "in_progress"}

    def _close(self, place: int, item: Mapping[str, Any]) -> Iterator[bytes]:
        at: dict[str, JSON] = {"item_id": item["id"], "output_index": place}
        if item["type"] == "function_call":
            told = {"arguments": item["arguments"], "name": item["name"]}
            yield self._event("response.function_call_arguments.done", **at, **told)
        for index, part in enumerate(item.get("content") or ()):
            text = part.get("text", part.get("refusal"))
            name = "refusal" if part["type"] == "refusal" else "text"
            told = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            told[name] = text
            yield self._event(f"response.{part['type']}.done", **at, content_index=index, **told)
            yield self._event("response.content_part.done", **at, content_index=index, part=part)
        yield self._event("response.output_item.done", output_index=place, item=dict(item))

    def _key_of(self, item: Mapping[str, Any]) -> object:
        if item["type"] == "function_call":
            return int(item["id"].rpartition("_")[2])
        return item["type"]

    def _place(self, key: object) -> dict[str, JSON]:
        return {"item_id": self._dialect.item_id(key), "output_index": self._opened[key]}

    def _event(self, kind: str, **fields: JSON) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return write_named_event(kind, msgspec.json.encode(event))


def _empty_part(kind: str) -> dict[str, JSON]:
    if kind == "refusal":
        return {"type": "refusal", "refusal": ""}
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": ""}
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
