"""Answers the store's operations: read, find out who asks, decode, call the store, encode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from agentlightning.errors import BadValue, StoreUnavailable
from agentlightning.records import from_json, to_json
from agentlightning.server.store_api.access import Access, Caller
from agentlightning.server.store_api.answers import Answer, ClientLeft, Header, Refused, refusal
from agentlightning.server.store_api.calls import CALLS
from agentlightning.server.store_api.incoming import Incoming, inflated
from agentlightning.server.store_api.limits import Limits
from agentlightning.server.store_api.pages import rollouts_page, spans_page
from agentlightning.server.store_api.rights import AnyOperation, check_request, check_role
from agentlightning.server.store_api.waiting import WaitingCalls
from agentlightning.server.store_api.workers import Workers
from agentlightning.store import Store
from agentlightning.store.http import operations as ops

_PAGES: Final[dict[str, Callable[[Store, Any, Limits], bytes]]] = {
    ops.SPANS.name: spans_page,
    ops.ROLLOUTS.name: rollouts_page,
}
_OPERATIONS: Final = {operation.path: operation for operation in ops.OPERATIONS}
_ALLOW_POST: Final[Header] = (b"allow", b"POST")
_QUICK_BYTES: Final = 64 * 1024
"""A body that may be read on the event loop: in less than a millisecond."""


class StoreApi:
    """The store's operations as an ASGI application.

    Args:
        store: what is asked; it stays the caller's to close.
        limits: of requests and replies.
    """

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.store = store
        self.limits = limits or Limits()
        self.access = Access(store)
        self._workers: Workers | None = None
        self._waiting: WaitingCalls | None = None

    # --- life -------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to serve, on the running event loop."""
        self._workers = Workers(self.limits.threads)
        self._waiting = WaitingCalls(self.store, self._workers)

    def release(self) -> None:
        """Answer the requests that are held back: the server is about to stop."""
        if self._waiting is not None:
            self._waiting.release()

    def close(self) -> None:
        """Serve no more."""
        if self._waiting is not None:
            self._waiting.close()
        if self._workers is not None:
            self._workers.close()
        self._waiting = self._workers = None

    @property
    def workers(self) -> Workers:
        """The threads for calls of the store."""
        if self._workers is None:
            raise StoreUnavailable("the server is not running: its lifespan has not begun")
        return self._workers

    # --- one request ------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request to an operation."""
        incoming = Incoming(scope, receive, self.limits)
        await respond(incoming, send, self._answer(scope, incoming))

    async def _answer(self, scope: Scope, incoming: Incoming) -> Answer:
        operation = _operation(scope)
        caller = await self.caller(incoming)
        check_role(operation, caller)
        incoming.check_type(b"application/json", "")
        raw = await incoming.body()
        waiting = self._waiting and self._waiting.calls.get(operation.name)
        if waiting:
            request = await self._read(operation, caller, raw, packed=incoming.is_packed)
            return Answer(to_json(await waiting(request, caller, incoming.receive)))
        body = await self.workers.run(
            self._carried_out, operation, caller, raw, packed=incoming.is_packed
        )
        return Answer(body)

    async def caller(self, incoming: Incoming) -> Caller:
        """Who asks.

        Raises:
            Unauthorized: nobody the store knows.
        """
        token = incoming.bearer
        known = self.access.known(token)
        return await self.workers.run(self.access.proved, token) if known is None else known

    async def _read(
        self, operation: AnyOperation, caller: Caller, raw: bytes, *, packed: bool
    ) -> msgspec.Struct:
        """A request that may be held back: read here if it is small, as nearly all are."""
        if packed or len(raw) > _QUICK_BYTES:
            return await self.workers.run(self._request, operation, caller, raw, packed=packed)
        return self._request(operation, caller, raw, packed=packed)

    def _carried_out(
        self, operation: AnyOperation, caller: Caller, raw: bytes, *, packed: bool
    ) -> bytes:
        request = self._request(operation, caller, raw, packed=packed)
        page = _PAGES.get(operation.name)
        if page is not None:
            return page(self.store, request, self.limits)
        return to_json(CALLS[operation.name](self.store, request))

    def _request(
        self, operation: AnyOperation, caller: Caller, raw: bytes, *, packed: bool
    ) -> msgspec.Struct:
        body = inflated(raw, self.limits.body_bytes) if packed else raw
        request = _decoded(body, operation)
        check_request(self.access, operation, caller, request)
        return request


async def respond(
    incoming: Incoming,
    send: Send,
    answering: Awaitable[Answer],
    refuse: Callable[[Exception], Answer] = refusal,
) -> None:
    """Send the answer, or the refusal that its making ended in once the client stopped sending."""
    try:
        try:
            answer = await answering
        except ClientLeft:
            raise
        except Exception as error:  # noqa: BLE001 - `refusal` logs what was not raised on purpose
            answer = refuse(error)
            closing = await incoming.discard()
            answer = replace(answer, headers=(*answer.headers, *closing))
    except ClientLeft:
        return
    await answer.send(send)


def _operation(scope: Scope) -> AnyOperation:
    operation = _OPERATIONS.get(scope["path"])
    if operation is None:
        raise Refused(404, f"there is nothing at {scope['path']!r}; /openapi.json lists what there is")
    if scope["method"] != "POST":
        message = (
            f"{scope['method']} is not what {operation.name} takes; expected POST with a JSON body"
        )
        raise Refused(405, message, [_ALLOW_POST])
    return operation


def _decoded(body: bytes, operation: AnyOperation) -> msgspec.Struct:
    try:
        decoded: msgspec.Struct = from_json(body, operation.request)
    except RecursionError:
        raise BadValue(f"the body of {operation.name} is nested too deeply") from None
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError) as error:
        raise BadValue(
            f"the body of {operation.name} cannot be read: {error}; /openapi.json has its schema"
        ) from error
    return decoded
