"""What the endpoint answers: a model's reply, or a refusal an SDK shows its user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from starlette.responses import Response

from agentlightning.records import JSON

_SUCCESS: Final = range(200, 300)


@dataclass(frozen=True)
class Answer:
    """What came back for one request.

    Attributes:
        status: the HTTP status.
        reply: the model's reply; None if there is none that could be read.
        content: the body as it came, for everything that is not a readable reply.
        headers: headers to pass on.
        error: what went wrong, for people; None on success.
    """

    status: int
    reply: dict[str, JSON] | None = None
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the model replied."""
        return self.status in _SUCCESS and self.reply is not None


class Refused(Exception):
    """The request is not served; carries the answer."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code
        self.answer = failure(status, message, code)


def failure(status: int, message: str, code: str) -> Answer:
    """An error in OpenAI's shape, so that every SDK shows ``message``."""
    kind = "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 - HTTP
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Answer(
        status,
        content=msgspec.json.encode(body),
        headers={"content-type": "application/json"},
        error=message,
    )


def json_response(body: JSON) -> Response:
    """A successful JSON answer."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def response_of(answer: Answer) -> Response:
    """``answer`` as it came."""
    if answer.reply is not None:
        return json_response(answer.reply)
    return Response(answer.content, answer.status, headers=dict(answer.headers))
