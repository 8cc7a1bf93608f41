"""Puts the pieces of a streamed reply together into the reply that would have come in one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentlightning.llm_api.sse import EventReader
from agentlightning.records import Api

_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ONCE: Final = frozenset({"role", "id", "type", "name", "finish_reason", "stop_reason"})


class StreamedReply:
    """A reply that arrives as server-sent events (chat completions, completions, Responses).

    Attributes:
        finished: the stream said its last word (``[DONE]`` or a terminal event).
        problem: what could not be read; such a reply is never complete.
    """

    def __init__(self, api: Api) -> None:
        self.finished = False
        self.problem: str | None = None
        self._api = api
        self._events = EventReader()
        self._body: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, piece: bytes) -> None:
        """Take bytes as they pass."""
        self._take(self._events.feed(piece))

    def end(self) -> None:
        """No more bytes will come."""
        self._take(self._events.end())

    @property
    def complete(self) -> bool:
        """Whether the whole reply was seen: the last word, or the finish reason of every choice."""
        closed = self._choices and all(c.get("finish_reason") for c in self._choices.values())
        return self.problem is None and (self.finished or bool(closed))

    def body(self) -> dict[str, Any] | None:
        """The reply so far, in the shape of one that was not streamed; None if nothing came."""
        if not self._choices:
            return self._body or None
        choices = [self._closed(self._choices[index]) for index in sorted(self._choices)]
        return {**self._body, "choices": choices}

    def _take(self, events: Iterator[str]) -> None:
        for data in events:
            if self.finished:
                return
            if data == "[DONE]":
                self.finished = True
                return
            try:
                event = json.loads(data)
            except ValueError:
                self.problem = f"an event of the stream is not JSON: {data[:80]!r}"
                continue
            if isinstance(event, Mapping):
                self._add(event)

    def _add(self, event: Mapping[str, Any]) -> None:
        if self._api == "messages":
            self.problem = "streams of the messages API are not put together yet"
        elif self._api == "responses":
            self._add_response_event(event)
        else:
            self._add_chunk(event)

    def _add_response_event(self, event: Mapping[str, Any]) -> None:
        if isinstance(event.get("response"), Mapping):
            self._body = dict(event["response"])
        self.finished = event.get("type") in _LAST_EVENTS
        if event.get("type") == "error":
            self.problem = f"the stream ended in an error: {event.get('message')}"

    def _add_chunk(self, chunk: Mapping[str, Any]) -> None:
        for key, value in chunk.items():
            if key != "choices" and value is not None:
                self._body[key] = value
        if self._body.get("object") == "chat.completion.chunk":
            self._body["object"] = "chat.completion"
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping):
                index = choice.get("index")
                place = index if isinstance(index, int) else 0
                _grow(self._choices.setdefault(place, {"index": place}), choice)

    def _closed(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """A choice with its ``delta`` under the name a whole reply has, tool calls as a list."""
        closed = {key: value for key, value in choice.items() if key not in {"delta", "text"}}
        if self._api == "completions":
            return {**closed, "text": choice.get("text", "")}
        message = {"role": "assistant", "content": None, **choice.get("delta", {})}
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"}
                for _, call in sorted(calls.items())
            ]
        return {**closed, "message": message}


def _grow(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a piece to what came before: text and lists grow, mappings merge, the rest is replaced."""
    for key, value in piece.items():
        if value is None:
            continue
        before = whole.get(key)
        if key == "tool_calls" and isinstance(value, list):
            _grow_tool_calls(_mapping_at(whole, key), value)
        elif isinstance(value, Mapping):
            _grow(_mapping_at(whole, key), value)
        elif isinstance(value, list) and isinstance(before, list):
            before.extend(value)
        elif isinstance(value, str) and isinstance(before, str) and key not in _ONCE:
            whole[key] = before + value
        else:
            whole[key] = value


def _grow_tool_calls(calls: dict[Any, Any], pieces: list[Any]) -> None:
    for position, piece in enumerate(pieces):
        if isinstance(piece, Mapping):
            index = piece.get("index")
            _grow(_mapping_at(calls, index if isinstance(index, int) else position), piece)


def _mapping_at(whole: dict[Any, Any], key: object) -> dict[Any, Any]:
    if not isinstance(whole.get(key), dict):
        whole[key] = {}
    found: dict[Any, Any] = whole[key]
    return found
