"""What a protocol has to tell the endpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agentlightning.endpoint.memory import Memory
from agentlightning.endpoint.replies import Answer
from agentlightning.records import JSON, Api

_SAMPLING: Final = ("temperature", "top_p")
_IDS: Final = frozenset({"prompt_token_ids", "token_ids"})
_LOGPROBS: Final = frozenset({"logprobs", "prompt_logprobs"})


class Events(ABC):
    """The stream of one reply, made while the engine's own stream comes in.

    What is made of a piece leaves at once, but for all that follows the end of the last choice:
    that waits until the call is recorded.
    """

    @abstractmethod
    def piece(self, chunk: Mapping[str, Any]) -> list[bytes]:
        """The events that one chunk of the engine makes."""

    def unreadable(self, _data: str) -> list[bytes]:
        """The events for a chunk that is not JSON; none, unless the protocol is the engine's own."""
        return []

    @abstractmethod
    def end(self, reply: Mapping[str, Any]) -> list[bytes]:
        """The last events, with the whole reply known."""

    @abstractmethod
    def failed(self, answer: Answer) -> list[bytes]:
        """The last events of a stream that broke off."""


class Dialect(ABC):
    """One request in its protocol, and its reply in the same.

    The engine is asked by :attr:`inner`, a request for chat completions (completions for completions),
    and its reply becomes the agent's by :meth:`reply`.

    Args:
        body: the request as it came.
        memory: what the attempt's earlier calls left to refer to.

    Raises:
        Refused: the request is none of its protocol, or asks for what cannot be done here.

    Attributes:
        streamed: whether the agent wants a stream.
        choices: how many replies were asked for.
        no_effect: fields that cannot be honoured and do no harm; they are reported.
        wants_logprobs: whether the agent asked for log-probabilities; ``wants_token_ids`` for ids.
    """

    api: ClassVar[Api]
    engine_api: ClassVar[Api] = "chat"

    streamed: bool = False
    choices: int = 1
    no_effect: tuple[str, ...] = ()
    wants_logprobs: bool = False
    wants_token_ids: bool = False
    inner: dict[str, JSON]

    def __init__(self, body: dict[str, JSON], memory: Memory) -> None:
        self.body = body
        self.memory = memory
        self.streamed = body.get("stream") is True
        self.wants_token_ids = body.get("return_token_ids") is True

    @abstractmethod
    def reply(self, inner: Mapping[str, Any]) -> dict[str, JSON]:
        """The engine's reply in this protocol, with every token id and log-probability it has."""

    @abstractmethod
    def events(self) -> Events:
        """A new stream of the reply."""

    def recorded(self, inner: Mapping[str, JSON]) -> dict[str, JSON]:
        """The request as it is recorded: the agent's own, with the sampling that counted.

        Args:
            inner: the engine's request, sampling included.
        """
        counted = {name: inner[name] for name in _SAMPLING if inner.get(name) is not None}
        return {**self.body, **counted}

    def remember(self, reply: Mapping[str, Any]) -> None:  # noqa: B027 - most protocols need none
        """Keep of a complete reply what later requests may refer to."""

    def shown(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """A reply, or one piece of a stream, without the numbers the agent did not ask for.

        They are most of its bytes, and frameworks would parse and keep them.
        """
        hidden = (frozenset() if self.wants_token_ids else _IDS) | (
            frozenset() if self.wants_logprobs else _LOGPROBS
        )
        shown = {key: value for key, value in reply.items() if key not in hidden}
        choices = reply.get("choices")
        if isinstance(choices, list):
            shown["choices"] = [
                {key: value for key, value in choice.items() if key not in hidden}
                if isinstance(choice, dict)
                else choice
                for choice in choices
            ]
        return shown


def choices_of(inner: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The choices of an engine's reply, or of a chunk of one, that can be read."""
    choices = inner.get("choices")
    return [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []


def first_choice(inner: Mapping[str, Any]) -> dict[str, Any]:
    """The first choice of an engine's reply; empty if there is none that can be read."""
    return next(iter(choices_of(inner)), {})


def message_of(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The message of a choice; empty if there is none."""
    message = choice.get("message")
    return message if isinstance(message, dict) else {}


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says: its content, whether text or parts of text."""
    content = message.get("content")
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message, or of a piece of one."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def function_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the arguments of a tool call, or of a piece of one."""
    function = call.get("function")
    held = function if isinstance(function, dict) else {}
    name, arguments = held.get("name"), held.get("arguments")
    return name if isinstance(name, str) else "", arguments if isinstance(arguments, str) else ""


def reasoning_of(message: Mapping[str, Any]) -> str:
    """What a model thought, under either of the names that servers have for it."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(thought := message.get(name), str) and thought:
            return thought
    return ""


def count_of(usage: object, *names: str) -> int:
    """A count of tokens, found by the names that lead to it; 0 if it is not told."""
    for name in names:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) else 0


def numbers_of(inner: Mapping[str, Any]) -> dict[str, JSON]:
    """Token ids and log-probabilities of a reply's only choice, for the top of another protocol's."""
    choice = first_choice(inner)
    found = {
        "prompt_token_ids": inner.get("prompt_token_ids"),
        "token_ids": choice.get("token_ids"),
        "logprobs": choice.get("logprobs"),
    }
    return {name: value for name, value in found.items() if value is not None}
