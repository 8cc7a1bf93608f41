"""Errors in the shape of each protocol, so that its SDKs raise their own exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from agentlightning.endpoint.replies import Answer, json_response
from agentlightning.records import JSON, Api

_ANTHROPIC: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FAULT_OF_SERVER: Final = 500


def error_response(api: Api, answer: Answer) -> Response:
    """An error answer of ours or of a model server, as agents of that protocol expect it."""
    return json_response(error_body(api, answer), answer.status, answer.headers)


def error_body(api: Api, answer: Answer) -> dict[str, JSON]:
    """The body of an error; a model server's own where it is of the same protocol."""
    theirs = _error_of(answer.content)
    if api != "messages":
        return theirs or {"error": openai_error(answer)}
    message = _message_of(theirs) or answer.message
    return {"type": "error", "error": {"type": _anthropic_type(answer.status), "message": message}}


def openai_error(answer: Answer) -> dict[str, JSON]:
    """What OpenAI's errors hold."""
    kind = "invalid_request_error" if answer.status < _FAULT_OF_SERVER else "server_error"
    message = _message_of(_error_of(answer.content)) or answer.message
    return {"message": message, "type": kind, "param": None, "code": answer.code}


def _anthropic_type(status: int) -> str:
    fallback = "invalid_request_error" if status < _FAULT_OF_SERVER else "api_error"
    return _ANTHROPIC.get(status, fallback)


def _error_of(content: bytes) -> dict[str, Any] | None:
    """A model server's error body, if it is one that an SDK reads."""
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None
    return body if isinstance(body, dict) and _message_of(body) else None


def _message_of(body: Mapping[str, Any] | None) -> str:
    """The message of an error body: OpenAI's shape, Anthropic's, or the flat one of some servers."""
    held = (body or {}).get("error", body)
    message = held.get("message") if isinstance(held, Mapping) else held
    return message if isinstance(message, str) else ""
