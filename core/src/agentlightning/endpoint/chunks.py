"""A finished reply of an engine that does not stream, as the chunks it would have come in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentlightning.records import JSON

_HEAD: Final = ("id", "created", "model", "system_fingerprint", "service_tier")


def chunks_of(reply: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each choice of a chat completion, then its end; the usage comes last, as when asked for."""
    head = {key: reply[key] for key in _HEAD if key in reply} | {"object": "chat.completion.chunk"}
    head_once = {key: reply[key] for key in ("prompt_token_ids",) if key in reply}
    choices = reply.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        for part in _pieces(choice):
            yield {**head, **head_once, "choices": [part]}
            head_once = {}
    if reply.get("usage") is not None:
        yield {**head, "choices": [], "usage": reply["usage"]}


def _pieces(choice: dict[str, Any]) -> Iterator[dict[str, JSON]]:
    delta = {key: value for key, value in (choice.get("message") or {}).items() if value is not None}
    if "tool_calls" in delta:
        calls = delta["tool_calls"] or ()
        delta["tool_calls"] = [{"index": position, **call} for position, call in enumerate(calls)]
    index = choice.get("index") or 0
    extras: dict[str, JSON] = {key: choice[key] for key in ("token_ids", "logprobs") if key in choice}
    yield {"index": index, "delta": delta, "finish_reason": None, **extras}
    yield {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}


def says_something(chunk: Mapping[str, Any] | None) -> bool:
    """Whether a chunk holds more than a role: from then on its stream cannot be taken back.

    One that cannot be read counts: it is passed on, where the protocol is the engine's own.
    """
    if chunk is None:
        return True
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        said = delta.items() if isinstance(delta, dict) else ()
        if choice.get("text") or any(value for key, value in said if key != "role"):
            return True
    return False
