"""Puts the pieces of a streamed reply together into the reply that would have come in one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from agentlightning.llm_api.event_streams import MessageEvents, ResponseEvents
from agentlightning.llm_api.replies import read_json
from agentlightning.llm_api.sse import DONE, EventReader
from agentlightning.records import Api

_NAMED_EVENTS: Final[dict[str, type[ResponseEvents | MessageEvents]]] = {
    "responses": ResponseEvents,
    "messages": MessageEvents,
}
_DONE_LINE: Final = re.compile(rb"^data: ?\[DONE\]", re.MULTILINE)
LAST_WORDS: Final[Mapping[Api, re.Pattern[bytes]]] = {
    "chat": _DONE_LINE,
    "completions": _DONE_LINE,
    "responses": re.compile(rb"^event: response\.(?:completed|incomplete|failed)", re.MULTILINE),
    "messages": re.compile(rb"^event: message_stop", re.MULTILINE),
}
"""Finds the line that says that nothing more will come.

For whoever lets bytes pass and reads them later. No event holds such a line: its JSON has no line ends.
"""

_ONCE: Final = frozenset({"role", "id", "type", "name", "finish_reason", "stop_reason"})


class StreamedReply:
    """A reply of any of the four protocols that arrives as server-sent events.

    Args:
        api: the protocol.
        choices: how many replies were asked for.

    Attributes:
        finished: the stream said its last word (``[DONE]`` or a terminal event).
        problem: what could not be read, or the error that the stream carried; such a reply is never
            complete.
    """

    def __init__(self, api: Api, *, choices: int = 1) -> None:
        self.finished = False
        self.problem: str | None = None
        self._api = api
        self._asked = choices
        self._events = EventReader()
        self._body: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        named = _NAMED_EVENTS.get(api)
        self._named: ResponseEvents | MessageEvents | None = named() if named else None

    def feed(self, piece: bytes) -> None:
        """Take bytes as they pass."""
        for data in self._events.feed(piece):
            self.take(data)

    def end(self) -> None:
        """No more bytes will come."""
        for data in self._events.end():
            self.take(data)

    def take(self, data: str) -> dict[str, Any] | None:
        """Take the data of one event, for those who read the events themselves.

        Returns:
            The event; None if it is the last word or cannot be read.
        """
        if self.finished or data == DONE:
            self.finished = True
            return None
        try:
            event = read_json(data)
        except ValueError:
            self.problem = f"an event of the stream is not JSON: {data[:80]!r}"
            return None
        if not isinstance(event, dict):
            self.problem = f"an event of the stream is JSON but not an object: {data[:80]!r}"
            return None
        self._add(event)
        return event

    @property
    def ended(self) -> bool:
        """Whether every choice that was asked for has its finish reason."""
        if self._named is not None:
            return self._named.ended
        reasons = [choice.get("finish_reason") for choice in self._choices.values()]
        return len(reasons) >= self._asked and all(reasons)

    @property
    def complete(self) -> bool:
        """Whether the whole reply was seen: the last word, or the end of every choice."""
        return self.problem is None and (self.finished or self.ended)

    def body(self) -> dict[str, Any] | None:
        """The reply so far, in the shape of one that was not streamed; None if nothing came."""
        if self._named is not None:
            return self._named.body()
        if not self._choices:
            return self._body or None
        choices = [self._closed(self._choices[index]) for index in sorted(self._choices)]
        return {**self._body, "choices": choices}

    def _add(self, event: Mapping[str, Any]) -> None:
        if self._named is None:
            self._add_chunk(event)
            return
        self._named.add(event)
        self.finished = self._named.finished
        self.problem = self._named.problem or self.problem

    def _add_chunk(self, chunk: Mapping[str, Any]) -> None:
        for key, value in chunk.items():
            if key not in {"choices", "error"} and value is not None:
                self._body[key] = value
        if self._body.get("object") == "chat.completion.chunk":
            self._body["object"] = "chat.completion"
        if error := chunk.get("error"):
            message = error.get("message") if isinstance(error, Mapping) else None
            self.problem = f"the stream carried an error: {message or error}"
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(one, dict) for one in choices):
            self.problem = f"the choices of an event of the stream cannot be read: {str(choices)[:80]}"
            return
        for choice in choices:
            index = choice.get("index")
            place = index if isinstance(index, int) else 0
            try:
                _grow(self._choices.setdefault(place, {"index": place}), choice)
            except _OddPiece as odd:
                self.problem = f"a piece of the stream cannot be read: {odd}"

    def _closed(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """A choice with its ``delta`` under the name a whole reply has, tool calls as a list."""
        closed = {key: value for key, value in choice.items() if key not in {"delta", "text"}}
        if self._api == "completions":
            return {**closed, "text": choice.get("text", "")}
        message = {"role": "assistant", "content": None, **choice.get("delta", {})}
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [_tool_call(call) for _, call in sorted(calls.items())]
        return {**closed, "message": message}


class _OddPiece(ValueError):
    """A piece is of another kind than what it continues."""


def _tool_call(gathered: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call without its place, and with the type that some servers leave out of streams."""
    return {"type": "function"} | {key: value for key, value in gathered.items() if key != "index"}


def _grow(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a piece to what came before: text and lists grow, mappings merge, the rest is replaced.

    Raises:
        _OddPiece: it would replace what came before by something of another kind, and lose it.
    """
    for key, value in piece.items():
        if value is None:
            continue
        before = whole.get(key)
        if type(value) is str and type(before) is str and key not in _ONCE:  # most of a stream
            whole[key] = before + value
            continue
        kind = _kind(value)
        # Tool calls come as lists and are gathered by their place.
        expected = list if key == "tool_calls" else kind if before is None else _kind(before)
        if kind is not expected:
            raise _OddPiece(f"{key!r} goes on with {str(value)[:80]}")
        if key == "tool_calls":
            _grow_tool_calls(_mapping_at(whole, key), value)
        elif kind is dict:
            _grow(_mapping_at(whole, key), value)
        elif kind is list and before is not None:
            before.extend(value)
        else:
            whole[key] = value


def _grow_tool_calls(calls: dict[Any, Any], pieces: list[Any]) -> None:
    for position, piece in enumerate(pieces):
        if not isinstance(piece, dict):
            raise _OddPiece(f"a tool call is {str(piece)[:80]}")
        index = piece.get("index")
        _grow(_mapping_at(calls, index if isinstance(index, int) else position), piece)


def _kind(value: object) -> type:
    """What a value of an event is to those that continue it."""
    kind = type(value)
    return kind if kind in {str, list, dict} else object


def _mapping_at(whole: dict[Any, Any], key: object) -> dict[Any, Any]:
    if not isinstance(whole.get(key), dict):
        whole[key] = {}
    found: dict[Any, Any] = whole[key]
    return found
