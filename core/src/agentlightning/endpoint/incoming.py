"""Reads what the endpoint needs of an HTTP request, and refuses what no model should see."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from agentlightning.endpoint.replies import Refused
from agentlightning.records import JSON, AttemptKey

T = TypeVar("T")

_KEY_HEADERS: Final = ("x-api-key", "api-key")
_DEEPEST: Final = 100
_LONGEST_ID: Final = 200
_LARGEST: Final = 2**31 - 1
_DIGITS: Final = 10


def tokens_of(request: Request) -> tuple[str, ...]:
    """The tokens a request shows, wherever its protocol puts its key.

    OpenAI's clients and Anthropic's ``auth_token`` send a bearer token, Anthropic's ``api_key`` goes
    into ``x-api-key`` and Azure's into ``api-key``; a client may send several, one of them ours.
    """
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    shown = [bearer.strip()] if scheme.lower() == "bearer" else []
    shown += [request.headers.get(name, "").strip() for name in _KEY_HEADERS]
    return tuple(dict.fromkeys(token for token in shown if token))


def attempt_key(request: Request) -> AttemptKey:
    """The attempt a URL names.

    Raises:
        Refused: it can name none.
    """
    rollout_id, number = request.path_params["rollout_id"], request.path_params["number"]
    plausible = len(rollout_id) <= _LONGEST_ID and rollout_id.isascii() and rollout_id.isprintable()
    attempt = _whole(number)
    if not plausible or attempt is None:
        told = f"there is no attempt {number!r:.20} of {rollout_id!r:.80}"
        raise Refused(404, told, "unknown_rollout")
    return AttemptKey(rollout_id, attempt)


def whole_number(request: Request, header: str) -> int | None:
    """The number in a header; None if it is missing or something else."""
    return _whole(request.headers.get(header, ""))


async def read_body(request: Request, *, limit: int, timeout_s: float) -> bytes:
    """The whole body.

    Raises:
        Refused: it is larger than ``limit`` bytes or takes longer than ``timeout_s`` seconds, or the
            client left while sending it.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise Refused(413, f"the request is larger than {limit} bytes", "request_too_large")
                parts.append(part)
    except TimeoutError as error:
        message = f"the request was not sent within {timeout_s:g} s"
        raise Refused(408, message, "request_too_slow") from error
    except ClientDisconnect as error:
        raise Refused(400, "the client left while it sent its request", "client_left") from error
    return b"".join(parts)


def decoded(body: bytes) -> dict[str, JSON]:
    """The body as a JSON object.

    Raises:
        Refused: it is something else, or nested beyond all reason.
    """
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Refused(400, f"the request is not JSON: {error}", "not_json") from error
    except RecursionError as error:
        raise Refused(400, _too_deep(), "not_json") from error
    if not isinstance(value, dict):
        raise Refused(
            400, f"the request is a JSON {type(value).__name__}; expected an object", "not_json"
        )
    # Few brackets cannot nest deeply: most requests are not walked through.
    if body.count(b"[") + body.count(b"{") > _DEEPEST and is_nested_too_deeply(value):
        raise Refused(400, _too_deep(), "not_json")
    return value


def is_nested_too_deeply(value: JSON) -> bool:
    """Whether JSON goes deeper than what is recorded by recursion can go."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for held in level
            if isinstance(held, dict | list)
            for item in (held.values() if isinstance(held, dict) else held)
        ]
        if not level:
            return False
    return True


def checked(body: dict[str, JSON], shape: type[T]) -> T:
    """The fields of a request that its shape names.

    Raises:
        Refused: one has another type than its protocol says; the message has its place.
    """
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the request cannot be read: {error}", "invalid_value") from error


def _whole(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        return None
    return number if (number := int(text)) <= _LARGEST else None


def _too_deep() -> str:
    return f"the request is nested more than {_DEEPEST} levels deep"
