"""Reads what the endpoint needs of an HTTP request."""

from __future__ import annotations

import msgspec
from starlette.requests import ClientDisconnect, Request

from agentlightning.endpoint.replies import Refused
from agentlightning.records import JSON


def bearer_token(request: Request) -> str:
    """The token a request shows; empty if it shows none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def whole_number(request: Request, header: str) -> int | None:
    """The number in a header; None if it is missing or something else."""
    text = request.headers.get(header, "")
    return int(text) if text.isascii() and text.isdigit() else None


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        Refused: it is larger than ``limit`` bytes, or the client left while sending it.
    """
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise Refused(413, f"the request is larger than {limit} bytes", "request_too_large")
            parts.append(part)
    except ClientDisconnect as error:
        raise Refused(400, "the client left while it sent its request", "client_left") from error
    return b"".join(parts)


def decoded(body: bytes) -> dict[str, JSON]:
    """The body as a JSON object.

    Raises:
        Refused: it is something else.
    """
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Refused(400, f"the request is not JSON: {error}", "not_json") from error
    if not isinstance(value, dict):
        raise Refused(
            400, f"the request is a JSON {type(value).__name__}; expected an object", "not_json"
        )
    return value
