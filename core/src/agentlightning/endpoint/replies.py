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
        error: what went wrong, for the record; None on success.
        message: the same for the agent; that of a model server is its own. ``code`` names the kind.
    """

    status: int
    reply: dict[str, JSON] | None = None
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    message: str = ""
    code: str = "upstream"

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
    """An error of ours; each protocol shows it in its own shape."""
    return Answer(status, error=message, message=message, code=code)


def json_response(body: JSON, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    given = dict(headers or {})
    return Response(msgspec.json.encode(body), status, headers=given, media_type="application/json")
