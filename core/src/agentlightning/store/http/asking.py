"""One request and its reply, and what is done when the spans are too many for one."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from agentlightning.errors import BadValue, LimitExceeded
from agentlightning.records import AttemptKey, Span, to_json
from agentlightning.store.http import messages as m
from agentlightning.store.http.attempt_tokens import AttemptTokens
from agentlightning.store.http.operations import ADD_SPANS, Operation
from agentlightning.store.http.refusals import answer
from agentlightning.store.http.transport import Transport

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
EndingT = TypeVar("EndingT", m.Finish, m.FinishAndClaim)
ReplyT = TypeVar("ReplyT", bound=msgspec.Struct)

_PART_BYTES: Final = 8 * 1024 * 1024
"""The size of a request from which on its spans are sent in several."""


class Asker:
    """Asks the server what the operations list, in their words.

    Args:
        transport: carries requests there.
        tokens: of the attempts that this client works on.
    """

    def __init__(self, transport: Transport, tokens: AttemptTokens) -> None:
        self._transport = transport
        self._tokens = tokens

    def ask(
        self, operation: Operation[RequestT, ReplyT], request: RequestT, *, wait_s: float = 0.0
    ) -> ReplyT:
        """The reply, or the error that the store there raised."""
        return self._exchange(operation, _encoded(request), wait_s)

    def add_spans(self, spans: list[Span]) -> int:
        """Send spans, by halves what is too large for one request; each may be repeated by itself."""
        keys = {AttemptKey(span.rollout_id, span.attempt) for span in spans}
        body = _encoded(m.AddSpans(spans=spans, tokens=self._tokens.of(keys)))
        is_one = len(spans) <= 1
        if is_one or len(body) <= _PART_BYTES:
            try:
                return self._exchange(ADD_SPANS, body).count
            except LimitExceeded:  # a server may take less than we think
                if is_one:
                    raise
        half = len(spans) // 2
        return self.add_spans(spans[:half]) + self.add_spans(spans[half:])

    def with_spans(self, operation: Operation[EndingT, ReplyT], request: EndingT) -> ReplyT:
        """Send results with their spans; the spans first if that is too large for one request."""
        body = _encoded(request)
        spans = [span for result in request.results for span in result.spans]
        if not spans or len(body) <= _PART_BYTES:
            try:
                return self._exchange(operation, body)
            except LimitExceeded:  # a server may take less than we think
                if not spans:
                    raise
        self.add_spans(spans)
        bare = [replace(result, spans=()) for result in request.results]
        return self._exchange(operation, _encoded(replace(request, results=bare)))

    def _exchange(
        self, operation: Operation[RequestT, ReplyT], body: bytes, wait_s: float = 0.0
    ) -> ReplyT:
        reply = self._transport.send(operation.path, body, wait_s=wait_s)
        return answer(reply.status, reply.body, operation.reply, self._transport.address.url)


def _encoded(request: msgspec.Struct) -> bytes:
    try:
        return to_json(request)
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError) as error:
        raise BadValue(f"the request cannot be written as JSON: {error}") from error
