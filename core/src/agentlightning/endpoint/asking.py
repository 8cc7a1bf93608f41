"""What changes in a request on its way to the engine: its sampling, its model, what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agentlightning.endpoint.dialects import Dialect
from agentlightning.records import JSON

_USAGE: Final = {"include_usage": True}
_LENGTHS: Final = frozenset({"max_tokens", "max_completion_tokens"})


@dataclass(frozen=True)
class Ask:
    """One request, ready to be sent.

    Attributes:
        dialect: the agent's request.
        inner: the engine's, with the sampling that counts.
        body: the request as it is recorded.
        overruled: what the agent asked for where another value was forced.
    """

    dialect: Dialect
    inner: dict[str, JSON]
    body: dict[str, JSON]
    overruled: dict[str, JSON] = field(default_factory=dict)


def prepare(dialect: Dialect, *, defaults: Mapping[str, JSON], forced: Mapping[str, JSON]) -> Ask:
    """Settle the sampling of a request.

    Args:
        dialect: the agent's request.
        defaults: sampling for what the agent left open.
        forced: sampling that beats what the agent says.
    """
    asked = dialect.inner
    given = {key: value for key, value in asked.items() if value is not None or key not in defaults}
    if _LENGTHS & {key for key, value in given.items() if value is not None}:
        defaults = {key: value for key, value in defaults.items() if key not in _LENGTHS}
    inner = {**defaults, **given, **forced}
    overruled = {
        key: asked[key]
        for key, value in forced.items()
        if asked.get(key) is not None and asked[key] != value
    }
    return Ask(dialect, inner, dialect.recorded(inner), overruled)


def outgoing(ask: Ask, *, model: str, token_ids: bool, stream: bool) -> dict[str, JSON]:
    """The body sent to an engine.

    Token ids and log-probabilities are always asked for, since training stands on them.

    Args:
        ask: the request.
        model: the name the engine has for what is served.
        token_ids: whether the engine can return token ids; one that cannot is not asked for
            log-probabilities either, since hosted models refuse unknown or unsupported fields.
        stream: whether the engine is to stream.
    """
    body = {key: value for key, value in ask.inner.items() if key not in {"stream", "stream_options"}}
    body["model"] = model
    if token_ids:
        body |= {"return_token_ids": True, "logprobs": _logprobs(ask)}
    if stream:
        options = ask.inner.get("stream_options")
        body |= {"stream": True, "stream_options": {**(options or {}), **_USAGE}}
    return body


def _logprobs(ask: Ask) -> bool | int:
    """Completions ask by the number of alternatives, chat by a switch."""
    if ask.dialect.engine_api == "chat":
        return True
    asked = ask.inner.get("logprobs")
    return asked if isinstance(asked, int) and not isinstance(asked, bool) else 1
