"""What changes in a request on its way to the engine, and in the reply on its way back.

Token ids and log-probabilities are always asked for, since training stands on them, and left out of
the reply again unless the agent asked for them itself: they are most of its bytes, and frameworks
would parse and keep them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agentlightning.records import JSON

_USAGE: Final = {"include_usage": True}


@dataclass(frozen=True)
class Ask:
    """One request, ready to be sent.

    Attributes:
        body: the agent's request with the sampling that counts; this is what is recorded.
        overruled: what the agent asked for where another value was forced.
        streamed: whether the agent wants a stream.
        wants_logprobs: whether the agent itself asked for log-probabilities. ``wants_token_ids``,
            ``wants_usage``: the same for token ids and for the usage of a stream.
    """

    body: dict[str, JSON]
    overruled: dict[str, JSON] = field(default_factory=dict)
    streamed: bool = False
    wants_logprobs: bool = False
    wants_token_ids: bool = False
    wants_usage: bool = False

    @property
    def choices(self) -> int:
        """How many replies were asked for."""
        n = self.body.get("n")
        return n if isinstance(n, int) and n > 0 else 1


def prepare(
    body: Mapping[str, JSON], *, defaults: Mapping[str, JSON], forced: Mapping[str, JSON]
) -> Ask:
    """Read an agent's request.

    Args:
        body: as the agent sent it.
        defaults: sampling for what the agent left open.
        forced: sampling that beats what the agent says.
    """
    options = body.get("stream_options")
    given = {key: value for key, value in body.items() if value is not None or key not in defaults}
    return Ask(
        body={**defaults, **given, **forced},
        overruled={
            key: body[key]
            for key, value in forced.items()
            if body.get(key) is not None and body[key] != value
        },
        streamed=body.get("stream") is True,
        wants_logprobs=body.get("logprobs") is True,
        wants_token_ids=body.get("return_token_ids") is True,
        wants_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
    )


def outgoing(ask: Ask, *, model: str, token_ids: bool, stream: bool) -> dict[str, JSON]:
    """The body sent to an engine.

    Args:
        ask: the request.
        model: the name the engine has for what is served.
        token_ids: whether the engine can return token ids; one that cannot is not asked for
            log-probabilities either, since hosted models refuse unknown or unsupported fields.
        stream: whether the engine is to stream.
    """
    body = {key: value for key, value in ask.body.items() if key not in {"stream", "stream_options"}}
    body["model"] = model
    if token_ids:
        body |= {"return_token_ids": True, "logprobs": True}
    if stream:
        options = ask.body.get("stream_options")
        body |= {"stream": True, "stream_options": {**(options or {}), **_USAGE}}
    return body


def for_agent(reply: Mapping[str, JSON], ask: Ask) -> dict[str, JSON]:
    """A reply, or one piece of a stream, without what the agent did not ask for."""
    hidden = set()
    if not ask.wants_token_ids:
        hidden |= {"prompt_token_ids", "token_ids"}
    if not ask.wants_logprobs:
        hidden |= {"logprobs", "prompt_logprobs"}
    if not hidden:
        return dict(reply)
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
