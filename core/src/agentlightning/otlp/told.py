"""What a convention's attributes tell of an LLM call, as the bodies of a request and its reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentlightning.llm_api.conversation import Message
from agentlightning.records import JSON, Api


@dataclass
class Told:
    """An LLM call in the shape of chat completions (or of completions), as far as it was told.

    Attributes:
        asked: the prompt's messages.
        replies: a message each choice.
        prompts: in place of ``asked``, the texts of the completions API.
        tools: schemas of the tools offered.
        parameters: the request's other parameters, by the API's names.
        finish_reasons: one each choice, as far as known.
        parts: names, or beginnings of names that end in a dot, of attributes that say nothing more.
    """

    asked: Sequence[Message] = ()
    replies: Sequence[Message] = ()
    prompts: Sequence[str] = ()
    tools: Sequence[JSON] = ()
    parameters: Mapping[str, JSON] = field(default_factory=dict)
    finish_reasons: Sequence[JSON] = ()
    usage: Mapping[str, JSON] = field(default_factory=dict)
    model: str | None = None
    response_model: str | None = None
    response_id: str | None = None
    base_url: str = ""
    parts: tuple[str, ...] = ()

    @property
    def api(self) -> Api:
        """The protocol of the bodies."""
        return "completions" if self.prompts else "chat"

    @property
    def has_prompt(self) -> bool:
        """Whether the prompt is known; instrumentors can leave all content out."""
        return bool(self.asked or self.prompts)

    def request(self) -> dict[str, Any]:
        """The body that was sent, as far as it is known."""
        asked: dict[str, Any] = {"messages": list(self.asked)}
        if self.prompts:
            asked = {"prompt": self.prompts[0] if len(self.prompts) == 1 else list(self.prompts)}
        tools = {"tools": list(self.tools)} if self.tools else {}
        return {**self.parameters, "model": self.model or self.response_model, **asked, **tools}

    def response(self) -> dict[str, Any] | None:
        """The body that came back; None if no reply was told."""
        if not self.replies:
            return None
        choices = [
            {"index": place, **self._body(reply), "finish_reason": self._finish_reason(place, reply)}
            for place, reply in enumerate(self.replies)
        ]
        known = {
            "id": self.response_id,
            "model": self.response_model,
            "usage": dict(self.usage) or None,
        }
        return {**{name: value for name, value in known.items() if value}, "choices": choices}

    def _body(self, reply: Message) -> dict[str, Any]:
        return {"text": reply.get("content")} if self.prompts else {"message": reply}

    def _finish_reason(self, place: int, reply: Message) -> JSON:
        told = self.finish_reasons[place] if place < len(self.finish_reasons) else None
        if told == "tool_call":  # OpenLLMetry's and the convention's word
            return "tool_calls"
        return told or ("tool_calls" if reply.get("tool_calls") else None)


def tool_call(call_id: JSON, name: JSON, arguments: JSON) -> Message:
    """A tool call of a message, its arguments as JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text or "{}"}}


def text_or_none(value: JSON) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None
