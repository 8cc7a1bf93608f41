"""Anthropic's Messages API, answered by chat completions."""

# ruff: noqa: D102  (Dialect and Events say what each method does)

from __future__ import annotations

import json
import secrets
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
from agentlightning.endpoint.dialects.messages_events import MessagesEvents
from agentlightning.endpoint.dialects.messages_request import NO_EFFECT, chat_request
from agentlightning.endpoint.dialects.shapes import Messages
from agentlightning.endpoint.incoming import checked
from agentlightning.endpoint.memory import Memory
from agentlightning.records import JSON

_ENDS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class MessagesDialect(Dialect):
    """``/v1/messages``.

    Attributes:
        message_id: of the reply, made here.
    """

    api = "messages"

    def __init__(self, body: dict[str, JSON], memory: Memory) -> None:
        super().__init__(body, memory)
        request = checked(body, Messages)
        self.message_id = f"msg_{secrets.token_hex(12)}"
        self.inner = chat_request(body, request, memory)
        # No protocol field, and asked for as the other protocols have it.
        self.wants_logprobs = body.get("logprobs") is True
        self.no_effect = tuple(name for name in NO_EFFECT if body.get(name) is not None)

    def events(self) -> Events:
        return MessagesEvents(self)

    def reply(self, inner: Mapping[str, Any]) -> dict[str, JSON]:
        choice = first_choice(inner)
        if not choice:
            return {"id": self.message_id, "type": "message"}
        return {
            **self.shell(inner.get("model")),
            "content": self._blocks(message_of(choice)),
            **self.ending(choice),
            "usage": usage_of(inner),
            **numbers_of(inner),
        }

    def shell(self, model: object) -> dict[str, JSON]:
        """A message without content."""
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "model": model or self.body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def ending(self, choice: Mapping[str, Any]) -> dict[str, JSON]:
        """Why a reply ended: ``stop_reason`` and, where the server tells it, ``stop_sequence``."""
        reason = _ENDS.get(str(choice.get("finish_reason")))
        matched = choice.get("stop_reason")  # vLLM's and SGLang's: the text that ended the reply
        if reason == "end_turn" and isinstance(matched, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": matched}
        return {"stop_reason": reason, "stop_sequence": None}

    def tool_block(self, number: int, call: Mapping[str, Any]) -> dict[str, JSON]:
        """The beginning of the use of a tool, without its input."""
        name, _ = function_of(call)
        own = f"toolu_{self.message_id.removeprefix('msg_')}_{number}"
        return {"type": "tool_use", "id": call.get("id") or own, "name": name, "input": {}}

    def _blocks(self, message: Mapping[str, Any]) -> list[dict[str, JSON]]:
        blocks: list[dict[str, JSON]] = []
        if thought := reasoning_of(message):
            blocks.append({"type": "thinking", "thinking": thought, "signature": ""})
        if text := text_of(message) or message.get("refusal"):
            blocks.append({"type": "text", "text": text})
        return blocks + [self._tool_use(*numbered) for numbered in enumerate(calls_of(message))]

    def _tool_use(self, number: int, call: Mapping[str, Any]) -> dict[str, JSON]:
        block = self.tool_block(number, call)
        said = function_of(call)[1] or "{}"
        try:
            value = json.loads(said)
        except (ValueError, RecursionError):  # the model's text, for the tool to refuse
            return {**block, "input": {"arguments": said}}
        self.memory.keep_arguments(str(block["id"]), said)
        return {**block, "input": value}


def usage_of(inner: Mapping[str, Any]) -> dict[str, JSON]:
    """Counts of tokens under Anthropic's names."""
    usage = inner.get("usage")
    cached = count_of(usage, "prompt_tokens_details", "cached_tokens")
    counts: dict[str, JSON] = {
        "input_tokens": count_of(usage, "prompt_tokens"),
        "output_tokens": count_of(usage, "completion_tokens"),
    }
    return {**counts, "cache_read_input_tokens": cached} if cached else counts
