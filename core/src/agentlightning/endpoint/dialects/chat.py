"""Chat completions: the engine's own protocol, passed on as it is."""

# ruff: noqa: D102  (Dialect and Events say what each method does)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from agentlightning.endpoint.dialects.base import Dialect, Events
from agentlightning.endpoint.dialects.errors import error_body
from agentlightning.endpoint.dialects.shapes import Chat
from agentlightning.endpoint.incoming import checked
from agentlightning.endpoint.memory import Memory
from agentlightning.endpoint.replies import Answer
from agentlightning.llm_api.sse import DONE, write_event
from agentlightning.records import JSON

LAST_EVENT: Final = write_event(DONE.encode())


class PassedOn(Events):
    """The engine's own stream, less what the agent did not ask for.

    Args:
        dialect: of the request.
        wants_usage: whether the agent asked for the usage at the end.
    """

    def __init__(self, dialect: Dialect, *, wants_usage: bool) -> None:
        self._dialect = dialect
        self._wants_usage = wants_usage

    def piece(self, chunk: Mapping[str, Any]) -> list[bytes]:
        shown = self._dialect.shown(chunk)
        if not self._wants_usage and shown.pop("usage", None) is not None and not shown.get("choices"):
            return []
        return [write_event(msgspec.json.encode(shown))]

    def unreadable(self, data: str) -> list[bytes]:
        return [write_event(data.encode())]

    def end(self, _reply: Mapping[str, Any]) -> list[bytes]:
        return [LAST_EVENT]

    def failed(self, answer: Answer) -> list[bytes]:
        return [write_event(msgspec.json.encode(error_body("chat", answer))), LAST_EVENT]


class ChatDialect(Dialect):
    """``/chat/completions``."""

    api = "chat"

    def __init__(self, body: dict[str, JSON], memory: Memory) -> None:
        super().__init__(body, memory)
        request = checked(body, Chat)
        self.inner = body
        self.choices = request.n or 1
        self.wants_logprobs = request.logprobs is True
        self._wants_usage = wants_usage(request.stream_options)

    def recorded(self, inner: Mapping[str, JSON]) -> dict[str, JSON]:
        return dict(inner)

    def reply(self, inner: Mapping[str, Any]) -> dict[str, JSON]:
        return dict(inner)

    def events(self) -> Events:
        return PassedOn(self, wants_usage=self._wants_usage)


def wants_usage(stream_options: Mapping[str, Any] | None) -> bool:
    """Whether the agent asked for the usage at the end of a stream."""
    return (stream_options or {}).get("include_usage") is True
