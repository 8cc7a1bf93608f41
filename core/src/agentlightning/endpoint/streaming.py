"""Server-sent events of chat completions: read, put together into a reply, and made from a reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from agentlightning.endpoint.asking import Ask, for_agent
from agentlightning.records import JSON

DONE: Final = b"[DONE]"
MEDIA_TYPE: Final = "text/event-stream"
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_HEAD: Final = ("id", "created", "model", "system_fingerprint", "service_tier")


def event(data: bytes) -> bytes:
    """One event."""
    return b"data: " + data + b"\n\n"


async def data_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each event, however the bytes were cut on their way.

    Splits at line feeds only: a string inside may hold the line separators that text functions would
    split at too.
    """
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
    if rest.startswith(b"data:"):
        yield rest[5:].strip()


class Gathering:
    """Puts the pieces of a stream together into the reply a request without ``stream`` would get."""

    def __init__(self) -> None:
        self._reply: dict[str, Any] = {"object": "chat.completion"}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, piece: dict[str, JSON]) -> None:
        """Take the next piece."""
        for key in (*_HEAD, "usage", "prompt_token_ids"):
            if piece.get(key) is not None:
                self._reply[key] = piece[key]
        for part in piece.get("choices") or ():
            self._add_choice(part)

    def finished(self, choices: int) -> bool:
        """Whether all ``choices`` replies have come to their end."""
        ended = sum(choice["finish_reason"] is not None for choice in self._choices.values())
        return ended >= choices

    def reply(self) -> dict[str, JSON]:
        """What has come so far, in the shape of a reply."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return {
            **self._reply,
            "choices": [{**choice, "message": _tidy(choice["message"])} for choice in choices],
        }

    def _add_choice(self, part: dict[str, Any]) -> None:
        index = part.get("index") or 0
        empty = {"index": index, "message": {"role": "assistant"}, "finish_reason": None}
        choice = self._choices.setdefault(index, empty)
        _add_delta(choice["message"], part.get("delta") or {})
        if part.get("finish_reason") is not None:
            choice["finish_reason"] = part["finish_reason"]
        if part.get("token_ids"):
            choice.setdefault("token_ids", []).extend(part["token_ids"])
        scores = (part.get("logprobs") or {}).get("content")
        if scores:
            choice.setdefault("logprobs", {"content": []})["content"].extend(scores)


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key in _TEXTS:
        if delta.get(key) is not None:
            message[key] = message.get(key, "") + delta[key]
    for part in delta.get("tool_calls") or ():
        calls = message.setdefault("tool_calls", {})
        call = calls.setdefault(
            part.get("index") or 0, {"type": "function", "function": {"name": "", "arguments": ""}}
        )
        if part.get("id"):
            call["id"] = part["id"]
        function = part.get("function") or {}
        for key in ("name", "arguments"):
            call["function"][key] += function.get(key) or ""


def _tidy(message: dict[str, Any]) -> dict[str, Any]:
    tidy = {"content": None, **message}
    if calls := tidy.get("tool_calls"):
        tidy["tool_calls"] = [calls[index] for index in sorted(calls)]
    return tidy


def as_events(reply: dict[str, JSON], ask: Ask) -> Iterator[bytes]:
    """A finished reply as the stream an agent expects, with no more in it than it asked for."""
    head = {key: reply[key] for key in _HEAD if key in reply} | {"object": "chat.completion.chunk"}
    shown = for_agent(reply, ask)
    head_once = {key: shown[key] for key in ("prompt_token_ids",) if key in shown}
    for choice in shown.get("choices") or ():
        for part in _pieces(choice):
            yield event(msgspec.json.encode({**head, **head_once, "choices": [part]}))
            head_once = {}
    if ask.wants_usage:
        yield event(msgspec.json.encode({**head, "choices": [], "usage": reply.get("usage")}))
    yield event(DONE)


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
