"""What goes back to the client: a reply, or a refusal that says what was expected."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.types import Send

from agentlightning import errors
from agentlightning.records import to_json
from agentlightning.store.http.messages import Refusal
from agentlightning.store.http.operations import STATUS

logger = logging.getLogger("agentlightning.server")

Header = tuple[bytes, bytes]

_OK: Final = 200
_FAILED: Final = 500
_JSON: Final = (b"content-type", b"application/json")
_LONGEST_MESSAGE: Final = 2000
_ASK_FOR_TOKEN: Final = (b"www-authenticate", b'Bearer realm="agentlightning store"')
_HEADERS: Final[dict[int, tuple[Header, ...]]] = {
    401: (_ASK_FOR_TOKEN,),
    503: ((b"retry-after", b"1"),),
}


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer."""

    body: bytes
    status: int = _OK
    headers: tuple[Header, ...] = ()
    content_type: Header = _JSON

    async def send(self, send: Send) -> None:
        """Write it to the connection."""
        length = (b"content-length", str(len(self.body)).encode())
        headers = [self.content_type, length, *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Refused(Exception):
    """The request is refused with a status that no error of the store stands for."""

    def __init__(self, status: int, message: str, headers: Sequence[Header] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.headers = tuple(headers)


class ClientLeft(Exception):
    """Nobody is there any more to be answered."""


def refusal(error: Exception) -> Answer:
    """The answer to a request that raised ``error``; what is nobody's mistake is logged and a 500."""
    if isinstance(error, Refused):
        return _refusal(error.status, errors.StoreError.__name__, str(error), error.headers)
    for kind in type(error).__mro__:
        status = STATUS.get(kind)
        if status is not None:
            if status == _FAILED:  # whoever runs the server has to see to it
                logger.error("what is stored cannot be read", exc_info=error)
            return _refusal(status, kind.__name__, str(error), _HEADERS.get(status, ()))
    logger.error("a request to the store failed", exc_info=error)
    message = (
        "the server failed to carry this out; that is a fault of the server and not of the request, "
        "and its log says more"
    )
    return _refusal(_FAILED, errors.StoreError.__name__, message)


def _refusal(status: int, error: str, message: str, headers: Sequence[Header] = ()) -> Answer:
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]} …"
    text = message.encode(errors="backslashreplace").decode()
    return Answer(to_json(Refusal(error=error, message=text)), status, tuple(headers))
