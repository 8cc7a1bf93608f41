"""A request as it comes in: its headers, and its body up to the size that is allowed."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from starlette.types import Receive, Scope

from agentlightning.errors import BadValue, LimitExceeded
from agentlightning.server.store_api.answers import ClientLeft, Header, Refused
from agentlightning.server.store_api.limits import Limits

_GZIP: Final = 16 + zlib.MAX_WBITS
_MOST_MEMBERS: Final = 100
_DISCARD_S: Final = 5.0


class Incoming:
    """One HTTP request.

    Args:
        scope: of the ASGI call.
        receive: of the ASGI call.
        limits: what its body may have.
    """

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.receive = receive
        self._limits = limits
        self._more = True

    @property
    def bearer(self) -> str:
        """The token it shows; empty if it shows none."""
        scheme, _, token = self.headers.get(b"authorization", b"").partition(b" ")
        return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""

    def check_type(self, expected: bytes, hint: str) -> None:
        """Refuse a body that says it is something else than ``expected``."""
        given = self.headers.get(b"content-type", b"")
        if given.partition(b";")[0].strip().lower() != expected:
            shown = given.decode("latin-1") or "missing"
            raise Refused(415, f"the content type is {shown}; expected {expected.decode()}{hint}")
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"gzip", b"identity"):
            message = f"the content encoding is {encoding.decode('latin-1')}; expected gzip or none"
            raise Refused(415, message, [(b"accept-encoding", b"gzip")])

    @property
    def is_packed(self) -> bool:
        """Whether the body has to be inflated before it is read."""
        return self.headers.get(b"content-encoding", b"").strip().lower() == b"gzip"

    async def body(self) -> bytes:
        """The body as it was sent.

        Raises:
            LimitExceeded: it is too large.
            ClientLeft: the client was gone before it was complete.
        """
        limit = self._limits.body_bytes
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise LimitExceeded(_too_large("the request", limit))
        first = await self._part()
        if not self._more:
            if len(first) > limit:
                raise LimitExceeded(_too_large("the request", limit))
            return first
        parts, size = [first], len(first)
        while self._more:
            part = await self._part()
            size += len(part)
            if size > limit:
                raise LimitExceeded(_too_large("the request", limit))
            parts.append(part)
        return b"".join(parts)

    async def discard(self) -> list[Header]:
        """Read on what a refused client still sends, for a while; a header if it does not end.

        A client that is still sending would find its connection reset instead of the refusal.
        """
        if b"expect" in self.headers:  # it asks first, and has sent nothing
            return [(b"connection", b"close")]
        try:
            async with asyncio.timeout(_DISCARD_S):
                while self._more:
                    await self._part()
        except TimeoutError:
            return [(b"connection", b"close")]
        return []

    async def _part(self) -> bytes:
        message = await self.receive()
        if message["type"] != "http.request":
            raise ClientLeft
        self._more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part


def inflated(body: bytes, limit: int) -> bytes:
    """What a gzip body holds.

    Raises:
        BadValue: it is no gzip, cut short, or of more members than anybody makes: each costs a copy of
            what follows it, so that a body of empty ones would keep a thread for hours.
        LimitExceeded: it holds more than ``limit`` bytes; no more than that was unpacked.
    """
    parts: list[bytes] = []
    size, rest = 0, body
    while rest:
        if len(parts) == _MOST_MEMBERS:
            raise BadValue(f"the gzip body has more than {_MOST_MEMBERS} members; pack it as one")
        unpacker = zlib.decompressobj(_GZIP)
        try:
            part = unpacker.decompress(rest, limit - size + 1)
        except zlib.error as error:
            raise BadValue(f"the body is not gzip, which its content-encoding says: {error}") from error
        size += len(part)
        if size > limit:
            raise LimitExceeded(_too_large("the request, unpacked,", limit))
        if not unpacker.eof:
            raise BadValue("the gzip body is cut short; send all of it")
        parts.append(part)
        rest = unpacker.unused_data
    return b"".join(parts)


def _too_large(what: str, limit: int) -> str:
    return (
        f"{what} is larger than {limit} bytes, the most this server takes; send it in several "
        "requests, or start the server with a higher --max-body-mb"
    )
