"""Completions: text in, text out, passed on to an engine that answers them."""

# ruff: noqa: D102  (Dialect and Events say what each method does)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentlightning.endpoint.dialects.base import Dialect, Events
from agentlightning.endpoint.dialects.chat import PassedOn, wants_usage
from agentlightning.endpoint.dialects.shapes import Completions
from agentlightning.endpoint.incoming import checked
from agentlightning.endpoint.memory import Memory
from agentlightning.endpoint.replies import Refused
from agentlightning.records import JSON


class CompletionsDialect(Dialect):
    """``/completions``.

    Several prompts in one request are answered and recorded, but not to train on: a record has the
    tokens of one prompt.
    """

    api = "completions"
    engine_api = "completions"

    def __init__(self, body: dict[str, JSON], memory: Memory) -> None:
        super().__init__(body, memory)
        request = checked(body, Completions)
        self.inner = body
        self.choices = (request.n or 1) * _prompts(request.prompt)
        # Here log-probabilities are a number, of alternatives; 0 asks for those of the text alone.
        self.wants_logprobs = request.logprobs is not None and request.logprobs is not False
        self._wants_usage = wants_usage(request.stream_options)

    def recorded(self, inner: Mapping[str, JSON]) -> dict[str, JSON]:
        return dict(inner)

    def reply(self, inner: Mapping[str, Any]) -> dict[str, JSON]:
        return dict(inner)

    def events(self) -> Events:
        return PassedOn(self, wants_usage=self._wants_usage)


def _prompts(prompt: str | list[Any] | None) -> int:
    """How many prompts a request has.

    Raises:
        Refused: it has none, or a mixture.
    """
    if isinstance(prompt, str):
        return 1
    for kind in (int, str, list):
        if prompt and all(isinstance(item, kind) and not isinstance(item, bool) for item in prompt):
            return 1 if kind is int else len(prompt)
    raise Refused(
        400,
        "prompt: expected a text, a list of texts, a list of token ids or a list of such lists",
        "invalid_value",
    )
