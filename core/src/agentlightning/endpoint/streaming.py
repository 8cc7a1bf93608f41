"""A finished reply as the stream of chat completions that an agent expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agentlightning.endpoint.asking import Ask, for_agent
from agentlightning.llm_api.sse import DONE, write_event
from agentlightning.records import JSON

MEDIA_TYPE: Final = "text/event-stream"
LAST_EVENT: Final = write_event(DONE.encode())
_HEAD: Final = ("id", "created", "model", "system_fingerprint", "service_tier")


def as_events(reply: dict[str, JSON], ask: Ask) -> Iterator[bytes]:
    """A finished reply as the stream an agent expects, with no more in it than it asked for."""
    head = {key: reply[key] for key in _HEAD if key in reply} | {"object": "chat.completion.chunk"}
    shown = for_agent(reply, ask)
    head_once = {key: shown[key] for key in ("prompt_token_ids",) if key in shown}
    for choice in shown.get("choices") or ():
        for part in _pieces(choice):
            yield write_event(msgspec.json.encode({**head, **head_once, "choices": [part]}))
            head_once = {}
    if ask.wants_usage:
        yield write_event(msgspec.json.encode({**head, "choices": [], "usage": reply.get("usage")}))
    yield LAST_EVENT


def _pieces(choice: dict[str, Any]) -> Iterator[dict[str, JSON]]:
    """The message of a choice, then its end."""
    delta = {key: value for key, value in (choice.get("message") or {}).items() if value is not None}
    if "tool_calls" in delta:
        calls = delta["tool_calls"] or ()
        delta["tool_calls"] = [{"index": position, **call} for position, call in enumerate(calls)]
    index = choice.get("index") or 0
    extras: dict[str, JSON] = {key: choice[key] for key in ("token_ids", "logprobs") if key in choice}
    yield {"index": index, "delta": delta, "finish_reason": None, **extras}
    yield {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}
