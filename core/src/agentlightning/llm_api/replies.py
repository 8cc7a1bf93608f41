"""Reads a reply of each of the four protocols, tolerant of whatever is missing or null."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec

from agentlightning.records import JSON, Api, Choice, Floats, Tokens

Body: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """What a reply holds.

    Attributes:
        rest: the reply as received, less the numbers that ``choices`` and ``prompt_ids`` hold packed.
        problem: why the reply cannot be used; None for a good one.
    """

    rest: dict[str, Any]
    choices: tuple[Choice, ...] = ()
    prompt_ids: Tokens | None = None
    problem: str | None = None


def read_reply(api: Api, body: Body) -> Reply:
    """Read ``body``, a reply of protocol ``api``; a bad one gives ``problem``, never an exception."""
    if isinstance(error := body.get("error"), Mapping | str) and error:
        message = error.get("message") if isinstance(error, Mapping) else error
        return Reply(dict(body), problem=f"the server replied with an error: {message or error}")
    try:
        reply = _READERS[api](body)
    except _Unusable as unusable:
        return Reply(dict(body), problem=str(unusable))
    if not reply.choices:
        return Reply(dict(body), problem="the reply has no choices")
    return reply


def read_json(text: str | bytes) -> Any:
    """Any JSON value; quick, and as lenient as the standard library where servers are not strict.

    Raises:
        ValueError: it is not JSON, or nested too deeply to be read.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # NaN, half a surrogate pair, a number out of range: the standard library reads them
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_body(content: bytes) -> tuple[dict[str, Any] | None, str | None]:
    """The JSON object of a reply, or what is wrong with it."""
    try:
        body = read_json(content)
    except (ValueError, RecursionError) as error:
        return None, f"the reply is not JSON ({error})"
    if not isinstance(body, dict):
        return None, f"the reply is JSON but not an object: {str(body)[:80]!r}"
    return body, None


class _Unusable(ValueError):
    """A part of the reply has another type than the protocol says."""


def _chat(body: Body) -> Reply:
    choices, kept = [], []
    for position, choice in enumerate(_mappings(body.get("choices"))):
        message = choice.get("message")
        if not isinstance(message, Mapping):
            raise _Unusable(f"choice {position} of the reply has no message")
        numbers = _chat_logprobs(choice.get("logprobs"))
        choices.append(_choice(choice, position, dict(message), numbers))
        kept.append(_without(choice, "token_ids", "logprobs" if numbers is not None else None))
    rest = {**_without(body, "prompt_token_ids"), "choices": kept}
    return Reply(rest, tuple(choices), _tokens(body.get("prompt_token_ids"), "prompt_token_ids"))


def _completions(body: Body) -> Reply:
    choices, kept = [], []
    prompts = [body.get("prompt_token_ids")]
    for position, choice in enumerate(_mappings(body.get("choices"))):
        logprobs = choice.get("logprobs")
        listed = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
        numbers = _floats(listed) if listed else None
        choices.append(_choice(choice, position, {"text": choice.get("text")}, numbers))
        dropped = "logprobs" if numbers is not None else None
        kept.append(_without(choice, "token_ids", "prompt_token_ids", dropped))
        prompts.append(choice.get("prompt_token_ids"))
    rest = {**_without(body, "prompt_token_ids"), "choices": kept}
    return Reply(rest, tuple(choices), _tokens(_only_one(prompts), "prompt_token_ids"))


def _only_one(prompts: Sequence[object]) -> object:
    """The ids of the prompt; None for several in one request, whose replies have each their own."""
    known = [prompt for prompt in prompts if prompt is not None]
    return known[0] if known and all(prompt == known[0] for prompt in known) else None


def _responses(body: Body) -> Reply:
    output = body.get("output")
    if not isinstance(output, list):
        raise _Unusable("the reply has no output")
    reason = body.get("incomplete_details")
    finish = reason.get("reason") if isinstance(reason, Mapping) else body.get("status")
    return _single(body, {"output": output}, finish)


def _messages(body: Body) -> Reply:
    content = body.get("content")
    if content is None:
        raise _Unusable("the reply has no content")
    message = {"role": body.get("role") or "assistant", "content": content}
    return _single(body, message, body.get("stop_reason"))


def _single(body: Body, message: dict[str, JSON], finish: object) -> Reply:
    """A reply without choices; servers' own hold no tokens, our endpoint's have them at the top."""
    numbers = _chat_logprobs(body.get("logprobs"))
    choice = Choice(
        message=message,
        response_ids=_tokens(body.get("token_ids"), "token_ids"),
        logprobs=numbers,
        finish_reason=finish if isinstance(finish, str) else None,
    )
    dropped = "logprobs" if numbers is not None else None
    rest = _without(body, "prompt_token_ids", "token_ids", dropped)
    return Reply(rest, (choice,), _tokens(body.get("prompt_token_ids"), "prompt_token_ids"))


_READERS: Final[dict[Api, Callable[[Body], Reply]]] = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
    "messages": _messages,
}


def _choice(choice: Body, position: int, message: dict[str, JSON], logprobs: Floats | None) -> Choice:
    index, finish = choice.get("index"), choice.get("finish_reason")
    return Choice(
        index=index if isinstance(index, int) else position,
        message=message,
        response_ids=_tokens(choice.get("token_ids"), "token_ids"),
        logprobs=logprobs,
        finish_reason=finish if isinstance(finish, str) else None,
    )


def _chat_logprobs(logprobs: object) -> Floats | None:
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return _floats([entry.get("logprob") for entry in _mappings(content)]) if content else None


def _mappings(value: object) -> list[Body]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _without(body: Body, *names: str | None) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in names}


def _tokens(value: object, name: str) -> Tokens | None:
    if value is None:
        return None
    if isinstance(value, Tokens):
        return value
    try:
        return Tokens(cast("list[int]", value))
    except (TypeError, OverflowError) as error:
        raise _Unusable(f"{name} of the reply are not token ids: {error}") from error


def _floats(values: Sequence[object]) -> Floats:
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise _Unusable(f"a log-probability of the reply is {value!r}, not a finite number")
    return Floats(cast("Sequence[float]", values))
