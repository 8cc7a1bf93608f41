"""The Responses API, answered by chat completions: servers' own give no token ids."""

# ruff: noqa: D102  (Dialect and Events say what each method does)

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

from agentlightning.endpoint.dialects.base import (
    Dialect,
    Events,
    calls_of,
    count_of,
    first_choice,
    function_of,
    message_of,
    numbers_of,
    reasoning_of,
    text_of,
)
from agentlightning.endpoint.dialects.responses_events import ResponsesEvents
from agentlightning.endpoint.dialects.responses_request import NO_EFFECT, chat_request, input_items
from agentlightning.endpoint.dialects.shapes import Responses
from agentlightning.endpoint.incoming import checked
from agentlightning.endpoint.memory import Memory
from agentlightning.records import JSON

_LOGPROBS: Final = "message.output_text.logprobs"
_ECHOED: Final[dict[str, JSON]] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
_ENDS: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesDialect(Dialect):
    """``/responses``, with a store of its own for ``previous_response_id``, kept per attempt.

    Attributes:
        response_id: of the reply, made here.
    """

    api = "responses"

    def __init__(self, body: dict[str, JSON], memory: Memory) -> None:
        super().__init__(body, memory)
        request = checked(body, Responses)
        self.response_id = f"resp_{secrets.token_hex(16)}"
        self.created_at = int(time.time())
        self._previous_id = request.previous_response_id
        self._stores = request.store is not False
        earlier = memory.history(self._previous_id) if self._previous_id else []
        self._items = input_items(body, memory)
        self._all = [*earlier, *self._items]
        self._shows_logprobs = _LOGPROBS in (request.include or ())
        self._stream: ResponsesEvents | None = None
        self.inner = chat_request(body, request, self._all)
        self.no_effect = tuple(name for name in NO_EFFECT if body.get(name) not in (None, "disabled"))
        if self._shows_logprobs and request.top_logprobs:
            self.inner["top_logprobs"] = request.top_logprobs

    def recorded(self, inner: Mapping[str, JSON]) -> dict[str, JSON]:
        """As the agent sent it; one that continues a response with all of its input spelt out."""
        recorded = super().recorded(inner)
        return {**recorded, "input": self._all} if self._previous_id else recorded

    def events(self) -> Events:
        self._stream = ResponsesEvents(self)
        return self._stream

    def remember(self, reply: Mapping[str, Any]) -> None:
        if self._stores:
            items = [*self._items, *reply["output"]]
            self.memory.keep_response(reply, items, self._previous_id)

    def reply(self, inner: Mapping[str, Any]) -> dict[str, JSON]:
        if not first_choice(inner):
            return {"id": self.response_id, "object": "response"}
        items = self.items(inner)
        order = [key for key in (self._stream.order if self._stream else ()) if key in items]
        ordered = [*order, *(key for key in items if key not in order)]
        ended = _ENDS.get(str(first_choice(inner).get("finish_reason")))
        return {
            **self.shell("incomplete" if ended else "completed", model=inner.get("model")),
            "completed_at": int(time.time()),
            "incomplete_details": {"reason": ended} if ended else None,
            "output": [items[key] for key in ordered],
            "usage": _usage(inner.get("usage")),
            **numbers_of(inner),
        }

    def shell(self, status: str, *, model: object = None) -> dict[str, JSON]:
        """A response without output."""
        echoed = {
            name: default if self.body.get(name) is None else self.body[name]
            for name, default in _ECHOED.items()
        }
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": model or self.body.get("model"),
            "output": [],
            "store": self._stores,
            "usage": None,
            **echoed,
        }

    def item_id(self, key: object) -> str:
        """The id of an item: derived, so that a stream and the reply it makes agree."""
        own = self.response_id.removeprefix("resp_")
        if isinstance(key, int):
            return f"fc_{own}_{key}"
        return f"{'rs' if key == 'reasoning' else 'msg'}_{own}"

    def call_id(self, key: int, given: object) -> str:
        """The id of a tool call: the engine's, else one made here."""
        return given if isinstance(given, str) and given else f"call_{self.item_id(key)[3:]}"

    def items(self, inner: Mapping[str, Any]) -> dict[object, dict[str, JSON]]:
        """The items of a reply: ``reasoning``, ``message``, and each tool call by its number."""
        choice = first_choice(inner)
        message = message_of(choice)
        items: dict[object, dict[str, JSON]] = {}
        if thought := reasoning_of(message):
            items["reasoning"] = self.reasoning_item(thought)
        calls, text, refusal = calls_of(message), text_of(message), message.get("refusal")
        if text or refusal or not calls:
            items["message"] = self.message_item(text, refusal, self._logprobs(choice))
        for number, call in enumerate(calls):
            items[number] = self.call_item(number, call)
        return items

    def reasoning_item(self, text: str, status: str = "completed") -> dict[str, JSON]:
        """An item with what the model thought."""
        content = [{"type": "reasoning_text", "text": text}] if text else []
        return {
            "id": self.item_id("reasoning"),
            "type": "reasoning",
            "summary": [],
            "content": content,
            "status": status,
        }

    def message_item(
        self, text: str, refusal: str | None = None, logprobs: list[JSON] | None = None
    ) -> dict[str, JSON]:
        """An item with what the model said."""
        said: dict[str, JSON] = {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": logprobs or [],
        }
        content = [{"type": "refusal", "refusal": refusal}] if refusal else [said]
        return {
            "id": self.item_id("message"),
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": content,
        }

    def call_item(self, number: int, call: Mapping[str, Any]) -> dict[str, JSON]:
        """An item with one tool call."""
        name, arguments = function_of(call)
        return {
            "id": self.item_id(number),
            "type": "function_call",
            "status": "completed",
            "call_id": self.call_id(number, call.get("id")),
            "name": name,
            "arguments": arguments,
        }

    def _logprobs(self, choice: Mapping[str, Any]) -> list[JSON]:
        held = choice.get("logprobs")
        content = held.get("content") if self._shows_logprobs and isinstance(held, dict) else None
        return content if isinstance(content, list) else []


def _usage(usage: Any) -> JSON:
    if not isinstance(usage, dict):
        return None
    prompt, completion = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens")
    cached = count_of(usage, "prompt_tokens_details", "cached_tokens")
    thought = count_of(usage, "completion_tokens_details", "reasoning_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": prompt + completion,
    }
