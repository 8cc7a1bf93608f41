"""Assembles chat messages from pieces that other protocols keep apart.

A model's turn is one message in chat completions: what it thought, said and called. The Responses API
has an item for each, Anthropic's a block. Put together wrongly, the next prompt would not continue the
last one token for token.
"""

from __future__ import annotations

from typing import Any

from agentlightning.endpoint.replies import Refused

Message = dict[str, Any]


class Turns:
    """Chat messages under construction.

    Attributes:
        messages: those so far.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def add(self, role: str, content: Any) -> None:
        """Add a message that is no model's."""
        self.messages.append({"role": role, "content": content})

    def tool_result(self, call_id: Any, content: Any) -> None:
        """Add what a tool returned."""
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def say(self, text: str) -> None:
        """Add text to the model's turn."""
        message = self._assistant()
        if message.get("tool_calls"):  # it spoke after calling: a turn of its own
            message = self._new_assistant()
        message["content"] = (message["content"] or "") + text

    def think(self, text: str) -> None:
        """Add a thought to the model's turn, under the name that chat templates know."""
        message = self._assistant()
        if message["content"] is not None or message.get("tool_calls"):
            message = self._new_assistant()
        message["reasoning_content"] = message.get("reasoning_content", "") + text

    def call(self, call_id: Any, name: Any, arguments: str) -> None:
        """Add a tool call to the model's turn."""
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        self._assistant().setdefault("tool_calls", []).append(call)

    def _assistant(self) -> Message:
        last = self.messages[-1] if self.messages else {}
        return last if last.get("role") == "assistant" else self._new_assistant()

    def _new_assistant(self) -> Message:
        self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]


def plain(parts: list[Message]) -> Any:
    """Content of chat completions: text alone is a string, which every chat template takes."""
    if all(part.get("type") == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def text_in(part: Message, name: str, place: str) -> str:
    """The text of a part.

    Raises:
        Refused: it has none.
    """
    text = part.get(name)
    if not isinstance(text, str):
        raise Refused(400, f"{place}.{name}: expected text, got {text!r:.80}", "invalid_value")
    return text


def unsupported(what: str) -> Refused:
    """The refusal of what no model of chat completions can do."""
    return Refused(
        400, f"{what} cannot be served here: requests are answered by a chat model", "unsupported"
    )
