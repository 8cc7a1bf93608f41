"""``POST /v1/traces``: spans of OpenTelemetry, from agents in any language."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from starlette.types import Receive, Scope, Send

from agentlightning.errors import (
    AgentLightningError,
    Forbidden,
    StoreUnavailable,
    Unauthorized,
)
from agentlightning.records import AttemptKey, Span, from_json
from agentlightning.server.store_api.access import Caller
from agentlightning.server.store_api.answers import Answer, Header, Refused, refusal
from agentlightning.server.store_api.api import StoreApi, respond
from agentlightning.server.store_api.incoming import Incoming, inflated
from agentlightning.store.http.messages import Refusal

PATH: Final = "/v1/traces"

_PROTOBUF: Final[Header] = (b"content-type", b"application/x-protobuf")
_INTERNAL: Final = 13
_CODES: Final = {400: 3, 401: 16, 403: 7, 405: 12, 413: 8, 415: 3, 503: 14}
"""gRPC's code for each HTTP status."""


class Traces:
    """OTLP/HTTP for a store, as an ASGI application.

    Args:
        api: whose store, tokens, limits and threads are used.
    """

    def __init__(self, api: StoreApi) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one export."""
        incoming = Incoming(scope, receive, self._api.limits)
        await respond(incoming, send, self._answer(scope, incoming), _refusal)

    async def _answer(self, scope: Scope, incoming: Incoming) -> Answer:
        if scope["method"] != "POST":
            raise Refused(405, "spans are sent here by POST", [(b"allow", b"POST")])
        caller = await self._api.caller(incoming)
        if caller.role == "runner":
            raise Forbidden(
                "a runner's token is good for no spans; send the token of the attempt, which came with "
                "its claim, or the owner's"
            )
        incoming.check_type(
            b"application/x-protobuf", "; OTLP in JSON is not taken, set the exporter to http/protobuf"
        )
        body = await incoming.body()
        reply = await self._api.workers.run(self._stored, caller, body, packed=incoming.is_packed)
        return Answer(reply, content_type=_PROTOBUF)

    def _stored(self, caller: Caller, raw: bytes, *, packed: bool) -> bytes:
        """Store what can be stored, attempt by attempt; the reply counts the rest."""
        from agentlightning.otlp import read_traces, spans_of

        body = inflated(raw, self._api.limits.body_bytes) if packed else raw
        spans, refusals = spans_of(read_traces(body))
        attempts: dict[AttemptKey, list[Span]] = {}
        for span in spans:
            attempts.setdefault(AttemptKey(span.rollout_id, span.attempt), []).append(span)
        allowed = self._allowed(caller, attempts)
        for key, group in attempts.items():
            try:
                if key not in allowed:
                    raise Forbidden(f"the token is not that of attempt {key.rollout_id}/{key.number}")
                self._api.store.add_spans(group)
            except StoreUnavailable:
                raise  # nothing is wrong with the spans: they are to be sent again
            except AgentLightningError as error:
                refusals.add(str(error), len(group))
        return _reply(refusals.count, str(refusals))

    def _allowed(self, caller: Caller, attempts: Collection[AttemptKey]) -> Collection[AttemptKey]:
        """The attempts that the caller may add spans to.

        Raises:
            Unauthorized: the token is good for none of them; it may be anybody's.
        """
        if caller.is_owner:
            return attempts
        allowed = {key for key in attempts if self._api.store.check_token(key, caller.token)}
        if not allowed:
            raise Unauthorized(
                "the token is not the owner's, and of none of the attempts that the spans name; "
                "expected the one that came with the claim"
            )
        return allowed


def _refusal(error: Exception) -> Answer:
    """A refusal as OTLP has it, a ``google.rpc.Status``."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTracePartialSuccess

    refused = refusal(error)
    code = _CODES.get(refused.status, _INTERNAL)
    # The same on the wire as a Status, an int64 and a string, without one more dependency for it.
    status = ExportTracePartialSuccess(
        rejected_spans=code, error_message=from_json(refused.body, Refusal).message
    )
    return replace(refused, body=status.SerializeToString(), content_type=_PROTOBUF)


def _reply(refused: int, reasons: str) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    if not refused:
        return ExportTraceServiceResponse().SerializeToString()
    partial = ExportTracePartialSuccess(rejected_spans=refused, error_message=reasons)
    return ExportTraceServiceResponse(partial_success=partial).SerializeToString()
