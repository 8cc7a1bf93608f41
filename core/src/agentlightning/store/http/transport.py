"""Requests to one server, sent again when the network or the server loses them, with a limit.

urllib3 has retries of its own, whose pauses know neither an end nor that the store is closed meanwhile.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Final

from urllib3 import Retry
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InvalidHeader,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from agentlightning.errors import StoreAway, StoreClosed
from agentlightning.store.http.address import Address
from agentlightning.store.http.line import Line, Reply
from agentlightning.store.http.refusals import gist, is_final

RETRY_S: Final = 5.0
"""How long a request that gets no answer is sent again; who has more patience calls again."""

_READ_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_AT_ONCE: Final = 32
_KEPT_FOR_WAITING: Final = 8


class Transport:
    """Sends requests until there is an answer, or there has been none for too long.

    Every request may be sent again, because a write either is harmless when repeated or carries an
    idempotency key.

    Args:
        address: of the server.
        token: shown with every request.
        retry_s: how long a request that gets no answer is sent again.
    """

    def __init__(self, address: Address, token: str, *, retry_s: float = RETRY_S) -> None:
        self.address = address
        self._retry_s = retry_s
        self._headers = {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "user-agent": "agentlightning",
        }
        self._line = Line(address, keep=_AT_ONCE, at_once=_AT_ONCE)
        # Requests that are held back would fill a line of limited width and keep heartbeats out.
        self._waiting_line = Line(address, keep=_KEPT_FOR_WAITING)
        self._process = os.getpid()
        self._closed = threading.Event()

    def send(
        self,
        path: str,
        body: bytes,
        *,
        wait_s: float = 0.0,
        line: Line | None = None,
        once: bool = False,
    ) -> Reply:
        """The server's answer: any but one of a server that failed, and may not the next time.

        Args:
            path: what is asked, under the address.
            body: JSON.
            wait_s: how long the server may hold the request back. A held request that is lost late is
                not sent again, since its time is over.
            line: the connections to use.
            once: do not send it again.

        Raises:
            StoreAway: there was none in time; the message says what was tried.
        """
        line = line or (self._waiting_line if wait_s else self._line)
        tries = _Tries(self.address.url, 0.0 if once else self._retry_s, again=not (once or wait_s))
        while True:
            self.check_usable()
            try:
                reply = line.post(self.address.path + path, body, self._headers, _READ_S + wait_s)
            except HTTPError as error:
                failure, retry_after = _explained(error), None
            else:
                if is_final(reply.status, reply.body):
                    return reply
                failure = f"answered {reply.status}: {gist(reply.body)}"
                retry_after = _seconds(reply.headers.get("retry-after"))
            self.check_usable()
            self._closed.wait(tries.pause_s(failure, retry_after))

    def line(self) -> Line:
        """A further line, with one connection, for whoever wants to hang up alone."""
        return Line(self.address, keep=1)

    def close(self) -> None:
        """End what is waited for; the answers to other requests under way still arrive."""
        self._closed.set()
        self._line.close()
        self._waiting_line.hang_up()

    def check_usable(self) -> None:
        """Raise ``StoreClosed`` if this object must not be used (any more)."""
        if self._closed.is_set():
            raise StoreClosed(f"the store {self.address.url} was closed")
        if os.getpid() != self._process:
            raise StoreClosed(
                f"the store {self.address.url} was opened before this process was forked; open it "
                "again here"
            )


class _Tries:
    """The tries of one request: how many there were, and when it has been enough.

    Args:
        url: the server's.
        patience_s: how long to try.
        again: a first try that took all the time is followed by a second one.
    """

    def __init__(self, url: str, patience_s: float, *, again: bool) -> None:
        self._url = url
        self._patience_s = patience_s
        self._again = again
        self._began = time.monotonic()
        self._count = 0
        self._backoff_s = _FIRST_PAUSE_S

    def pause_s(self, failure: str, retry_after: float | None) -> float:
        """How long to wait before the next try; raises ``StoreAway`` if there is to be none."""
        self._count += 1
        spent_s = time.monotonic() - self._began
        pause_s = self._backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients, no secret
        self._backoff_s = min(2 * self._backoff_s, _LONGEST_PAUSE_S)
        if retry_after is not None:
            pause_s = retry_after
        is_owed_one = self._again and self._count == 1 and pause_s <= _LONGEST_PAUSE_S
        if spent_s + pause_s > self._patience_s and not is_owed_one:
            raise StoreAway(self._told(failure, spent_s, retry_after))
        return pause_s

    def _told(self, failure: str, spent_s: float, retry_after: float | None) -> str:
        times = "once" if self._count == 1 else f"{self._count} times"
        later = "" if retry_after is None else f", and is to be asked again in {retry_after:g} s"
        return (
            f"the store {self._url} {failure}{later} (tried {times} in {spent_s:.1f} s); check that "
            "its server runs and that this is the URL it printed: agl store serve"
        )


def _explained(error: HTTPError) -> str:
    cause = error.__cause__ or error
    if isinstance(error, NewConnectionError | ConnectTimeoutError):
        return f"cannot be reached: {cause}"
    if isinstance(error, SSLError):
        return f"cannot be spoken to over TLS: {cause}"
    if isinstance(error, ReadTimeoutError):
        return f"gave no answer in time: {error}"
    return f"ended the connection without a whole answer: {cause}"


def _seconds(retry_after: str | None) -> float | None:
    """A ``Retry-After`` header in seconds; one that cannot be read is as good as none."""
    if retry_after is None:
        return None
    try:
        return Retry().parse_retry_after(retry_after)
    except InvalidHeader:
        return None
