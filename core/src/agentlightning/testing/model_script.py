"""What the scripted model says: turns from a marker in the prompt, byte tokens, made-up logprobs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentlightning.records import JSON

_MARKER: Final = re.compile(r"\[\[((?:tool|say):.*?)\]\]", re.DOTALL)
LOGPROB: Final = -0.25
"""The log-probability of every token the scripted model says."""


@dataclass(frozen=True)
class Turn:
    """One reply: some text, or calls of tools with their arguments as JSON text.

    Attributes:
        text: what the model says.
        tool: the tool it calls, with ``arguments``.
        more: further tools, as pairs of name and arguments; in a stream, their pieces alternate.
        reasoning: what it thinks before.
    """

    text: str | None = None
    tool: str | None = None
    arguments: str = "{}"
    more: tuple[tuple[str, str], ...] = ()
    reasoning: str | None = None

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Each tool that is called: its name and its arguments."""
        return () if self.tool is None else ((self.tool, self.arguments), *self.more)

    def rendered(self) -> str:
        """The text its token ids stand for, with the end marker the model would sample."""
        thought = f"<think>{self.reasoning}</think>" if self.reasoning else ""
        calls = "".join(f"<call>{name}:{arguments}</call>" for name, arguments in self.calls)
        return f"{thought}{self.text or ''}{calls}<end>"


def scripted_turn(messages: Sequence[Mapping[str, Any]]) -> Turn:
    """The turn that is due: step = number of assistant turns so far; the last one is repeated.

    The script is a marker anywhere in the prompt: ``[[tool:NAME:{json};;say:TEXT]]``.
    Without one the model says "ok".
    """
    found = _MARKER.search("\n".join(text_of(message.get("content")) for message in messages))
    if found is None:
        return Turn(text="ok")
    steps = found.group(1).split(";;")
    taken = sum(message.get("role") == "assistant" for message in messages)
    kind, _, rest = steps[min(taken, len(steps) - 1)].partition(":")
    if kind == "say":
        return Turn(text=rest)
    name, _, arguments = rest.partition(":")
    return Turn(tool=name, arguments=json.dumps(json.loads(arguments or "{}")))


def prompt_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The prompt as the model reads it. A reply appended to it is the beginning of the next prompt."""
    return "".join(_message_text(message) for message in messages) + "<assistant>"


def token_ids(text: str) -> list[int]:
    """The toy tokenizer: one token a byte."""
    return list(text.encode())


def logprobs_of(text: str) -> dict[str, JSON]:
    """The ``logprobs`` of a choice that says ``text``."""
    return {
        "content": [
            {"token": chr(byte), "bytes": [byte], "logprob": LOGPROB, "top_logprobs": []}
            for byte in text.encode()
        ],
        "refusal": None,
    }


def text_of(content: object) -> str:
    """The text of a message's content, whether a string or parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def _message_text(message: Mapping[str, Any]) -> str:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = tuple((function["name"], function["arguments"]) for function in functions)
    name, arguments = calls[0] if calls else (None, "{}")
    turn = Turn(
        text=text_of(message.get("content")),
        tool=name,
        arguments=arguments,
        more=calls[1:],
        reasoning=message.get("reasoning_content"),
    )
    return f"<{message.get('role')}>{turn.rendered()}"
