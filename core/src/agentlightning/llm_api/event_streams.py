"""Puts streams of named events together: those of the Responses API and of Anthropic's messages.

Both announce a reply, grow it block by block, and close it. What a server sends beyond that is kept
where it has a place and left out where it has none; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Event: TypeAlias = Mapping[str, Any]

_LAST_RESPONSES: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponseEvents:
    """A reply of the Responses API.

    Its last event repeats it whole; the pieces count only for a stream that was left before.

    Attributes:
        finished: the last event was seen.
        problem: the error that the stream carried.
    """

    def __init__(self) -> None:
        self.finished = False
        self.problem: str | None = None
        self._body: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}

    @property
    def ended(self) -> bool:
        """Whether the whole reply was seen."""
        return self.finished

    def add(self, event: Event) -> None:
        """Take one event."""
        kind = str(event.get("type"))
        if isinstance(event.get("response"), Mapping):
            self._body = dict(event["response"])
        if kind in _LAST_RESPONSES:
            self.finished = True
        elif kind == "error":
            self.problem = f"the stream ended in an error: {event.get('message')}"
        elif isinstance(place := event.get("output_index"), int):
            self._add_piece(kind, place, event)

    def body(self) -> dict[str, Any] | None:
        """The reply so far; None if nothing came."""
        if self._items and not self._body.get("output"):
            output = [self._items[place] for place in sorted(self._items)]
            return {**self._body, "output": output}
        return self._body or None

    def _add_piece(self, kind: str, place: int, event: Event) -> None:
        if kind.startswith("response.output_item."):
            if isinstance(event.get("item"), Mapping):
                self._items[place] = dict(event["item"])
            return
        delta = event.get("delta")
        if not isinstance(delta, str):
            return
        message = {"type": "message", "role": "assistant", "content": []}
        item = self._items.setdefault(place, message)
        if kind == "response.function_call_arguments.delta":
            item["arguments"] = str(item.get("arguments") or "") + delta
        elif kind == "response.output_text.delta":
            _grow_text(item, event.get("content_index"), delta)


class MessageEvents:
    """A reply of Anthropic's Messages API; the attributes are those of :class:`ResponseEvents`."""

    def __init__(self) -> None:
        self.finished = False
        self.problem: str | None = None
        self._body: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, str] = {}

    @property
    def ended(self) -> bool:
        """Whether the end of the reply has its reason."""
        return self._body.get("stop_reason") is not None

    def add(self, event: Event) -> None:
        """Take one event."""
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start" and isinstance(event.get("message"), Mapping):
            self._body = dict(event["message"])
        elif kind == "message_delta":
            self._close(event)
        elif kind == "message_stop":
            self.finished = True
        elif kind == "error":
            error = event.get("error")
            message = error.get("message") if isinstance(error, Mapping) else None
            self.problem = f"the stream carried an error: {message or error}"
        elif kind == "content_block_start" and isinstance(index, int):
            block = event.get("content_block")
            self._blocks[index] = dict(block) if isinstance(block, Mapping) else {}
        elif kind == "content_block_delta" and isinstance(index, int):
            self._grow(index, event.get("delta"))

    def body(self) -> dict[str, Any] | None:
        """The reply so far; None if nothing came."""
        if not self._body and not self._blocks:
            return None
        return {**self._body, "content": [self._block(index) for index in sorted(self._blocks)]}

    def _close(self, event: Event) -> None:
        """Take the reason of the end, and counts of tokens that replace those of the start."""
        for held, name in ((event.get("delta"), None), (event.get("usage"), "usage")):
            if not isinstance(held, Mapping):
                continue
            known = {key: value for key, value in held.items() if value is not None}
            before = self._body.get("usage")
            earlier = before if isinstance(before, Mapping) else {}
            self._body.update(known if name is None else {name: {**earlier, **known}})

    def _grow(self, index: int, delta: Any) -> None:
        """Add to a block: text, thinking and a signature grow, citations gather, arguments are JSON."""
        if not isinstance(delta, Mapping):
            return
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        for key, value in delta.items():
            if key == "partial_json":
                self._arguments[index] = self._arguments.get(index, "") + str(value)
            elif key == "citation":
                block["citations"] = [*(block.get("citations") or []), value]
            elif key != "type" and isinstance(value, str):
                block[key] = str(block.get(key) or "") + value

    def _block(self, index: int) -> dict[str, Any]:
        block, arguments = self._blocks[index], self._arguments.get(index)
        if not arguments:
            return block
        try:
            return {**block, "input": json.loads(arguments)}
        except (ValueError, RecursionError):  # cut in the middle: kept as the text it is
            return {**block, "input": arguments}


def _grow_text(item: dict[str, Any], index: object, delta: str) -> None:
    content = item.get("content")
    parts = list(content) if isinstance(content, list) else []
    place = index if isinstance(index, int) and 0 <= index <= len(parts) else len(parts)
    before = parts[place] if place < len(parts) and isinstance(parts[place], Mapping) else {}
    text = str(before.get("text") or "") + delta
    item["content"] = [
        *parts[:place],
        {"type": "output_text", **before, "text": text},
        *parts[place + 1 :],
    ]
