"""OTLP/HTTP in: spans of OpenTelemetry become spans of the attempt they name."""

from __future__ import annotations

import gzip
import random

import pytest
from agentlightning.records import AttemptKey, root_span_id_of, trace_id_of
from agentlightning.testing.store.making import request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

PATH = "/v1/traces"
PROTOBUF = "application/x-protobuf"
START = 1_800_000_000_000_000_000


@pytest.fixture
def claim(fast, run_id):
    fast.store.enqueue(run_id, [request()])
    (claim,) = fast.store.claim(run_id, "w")
    return claim


def value(plain) -> AnyValue:
    if isinstance(plain, list):
        return AnyValue(array_value=ArrayValue(values=map(value, plain)))
    if isinstance(plain, dict):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(plain)))
    field = {bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    return AnyValue(**{field.get(type(plain), "string_value"): plain})


def pairs(attributes: dict) -> list[KeyValue]:
    return [KeyValue(key=name, value=value(plain)) for name, plain in attributes.items()]


def otel_span(number: int = 1, attributes: dict | None = None, **fields) -> Span:
    given = {
        "trace_id": bytes(15) + b"\x07",
        "span_id": number.to_bytes(8, "big"),
        "name": f"step {number}",
        "start_time_unix_nano": START,
        "end_time_unix_nano": START + 5,
        **fields,
    }
    return Span(attributes=pairs(attributes or {}), **given)


def export(spans: list[Span], **resource) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(pairs(resource))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name, of_scope.scope.version = "my.tracer", "1.2"
    of_scope.spans.extend(spans)
    return request


def of(key: AttemptKey) -> dict:
    return {"agentlightning.rollout_id": key.rollout_id, "agentlightning.attempt": key.number}


def send(client, exported, **headers) -> tuple[int, ExportTraceServiceResponse]:
    body = exported if isinstance(exported, bytes) else exported.SerializeToString()
    status, reply, answered = client.send(PATH, body, **{"content_type": PROTOBUF, **headers})
    assert answered["content-type"] == PROTOBUF
    kind = ExportTraceServiceResponse if status == 200 else ExportTracePartialSuccess
    return status, kind.FromString(reply)


def test_spans_of_a_resource_are_stored_with_the_attempt_it_names(fast, claim):
    child = otel_span(
        2,
        {"n": 3, "list": [1, "a", 0.5, True], "map": {"x": {"y": 1}}},
        parent_span_id=(1).to_bytes(8, "big"),
        status=Status(code=Status.STATUS_CODE_ERROR, message="no"),
        kind=Span.SPAN_KIND_CLIENT,
        events=[Span.Event(name="exception", time_unix_nano=START + 1, attributes=pairs({"a": 1}))],
    )
    exported = export([otel_span(), child], **of(claim.key), **{"service.name": "agent"})
    status, reply = send(fast.client(claim.token), exported)
    assert (status, reply.partial_success.rejected_spans) == (200, 0)
    first, second = fast.store.spans([claim.key.rollout_id])
    assert (first.span_id, first.trace_id) == ("0" * 15 + "1", "0" * 31 + "7")
    assert (first.kind, first.status) == ("other", "unset")
    assert first.parent_id == root_span_id_of(claim.key)
    assert first.attributes == {
        "otel.resource": {"service.name": "agent"},
        "otel.scope.name": "my.tracer",
        "otel.scope.version": "1.2",
    }
    assert (second.parent_id, second.status, second.start_ns, second.end_ns) == (
        first.span_id, "error", START, START + 5,
    )  # fmt: skip
    assert second.attributes["list"] == [1, "a", 0.5, True]
    assert second.attributes["map"] == {"x": {"y": 1}}
    assert second.attributes["otel.status_description"] == "no"
    assert second.attributes["otel.span_kind"] == "client"
    (event,) = second.events
    assert (event.name, event.time_ns, event.attributes) == ("exception", START + 1, {"a": 1})


def test_sending_the_same_again_stores_nothing_twice_and_gzip_is_taken(fast, claim):
    exported = export([otel_span(number) for number in range(1, 4)], **of(claim.key))
    assert send(fast.client(), exported)[0] == 200
    packed = gzip.compress(exported.SerializeToString())
    assert send(fast.client(), packed, content_encoding="gzip")[0] == 200
    assert len(list(fast.store.spans([claim.key.rollout_id]))) == 3


def test_a_span_may_name_its_attempt_itself_and_as_text(fast, claim):
    named = {**of(claim.key), "agentlightning.attempt": "1"}
    exported = export([otel_span(1, named)], **{"agentlightning.rollout_id": "another"})
    assert send(fast.client(), exported)[1].partial_success.rejected_spans == 0
    (stored,) = fast.store.spans([claim.key.rollout_id])
    assert not any(name.startswith("agentlightning") for name in stored.attributes)


def test_a_span_of_the_attempts_trace_needs_no_attributes(fast, claim):
    trace_id = bytes.fromhex(trace_id_of(claim.key))
    spans = [
        otel_span(1, trace_id=trace_id, parent_span_id=bytes.fromhex(root_span_id_of(claim.key))),
        otel_span(2, trace_id=trace_id, parent_span_id=(1).to_bytes(8, "big")),
        otel_span(3, trace_id=b"\x00\x00\x00\x00\x01" + bytes(10) + b"\x07"),  # of no rollout here
    ]
    status, reply = send(fast.client(claim.token), export(spans))
    assert (status, reply.partial_success.rejected_spans) == (200, 1)
    first, second = fast.store.spans([claim.key.rollout_id])
    assert (first.parent_id, second.parent_id) == (root_span_id_of(claim.key), first.span_id)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"gen_ai.operation.name": "chat"}, "other"),  # recorded by seam or endpoint already
        ({"openinference.span.kind": "LLM"}, "other"),
        ({"openinference.span.kind": "TOOL"}, "tool"),
        ({"traceloop.span.kind": "agent"}, "agent"),
        ({"traceloop.span.kind": "workflow"}, "operation"),
        ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}, "tool"),
        ({"gen_ai.operation.name": "invoke_agent"}, "agent"),
        ({"gen_ai.operation.name": "embeddings"}, "other"),
        ({"gen_ai.tool.name": "search"}, "tool"),
        ({"agentlightning.reward.value": 0.5}, "reward"),
        ({"agentlightning.reward.value": float("nan")}, "other"),
        ({"agentlightning.reward.value": "high", "agentlightning.kind": "reward"}, "other"),
        ({"agentlightning.kind": "annotation"}, "annotation"),
        ({"agentlightning.kind": "llm"}, "other"),
        ({"agentlightning.kind": ["llm"]}, "other"),
        ({"agentlightning.message": "hi"}, "message"),
        ({"http.method": "GET"}, "other"),
    ],
)
def test_the_kind_is_what_the_attributes_say(fast, claim, attributes, kind):
    assert send(fast.client(), export([otel_span(1, attributes)], **of(claim.key)))[0] == 200
    assert [item.kind for item in fast.store.spans([claim.key.rollout_id])] == [kind]


def test_secrets_and_large_media_are_not_stored(fast, claim):
    secret = "sk-abcdefghijklmnop"
    attributes = {
        "api_key": secret,
        "request": {"headers": {"Authorization": f"Bearer {secret}"}},
        "http.request.header.authorization": [f"Bearer {secret}"],
        "input.value": f'{{"n": 1, "config": {{"api_key": "{secret}"}}}}',
        "gen_ai.headers": f"{{'authorization': 'Bearer {secret}'}}",
        "exception.message": f"401 for {secret}",
        "blob": b"\x00" * 10,
        "image": "data:image/png;base64," + "A" * 10_000,
    }
    failed = otel_span(1, attributes, status=Status(code=2, message=f"bad key={secret}"))
    assert send(fast.client(), export([failed], **of(claim.key), api_key=secret))[0] == 200
    (stored,) = fast.store.spans([claim.key.rollout_id])
    assert secret not in str(stored)
    assert len(str(stored)) < 3000


def test_spans_that_cannot_be_kept_are_counted_with_the_reason(fast, claim):
    spans = [
        otel_span(1, of(claim.key)),
        otel_span(2),
        otel_span(3, {"agentlightning.rollout_id": claim.key.rollout_id}),
        otel_span(4, {**of(claim.key), "agentlightning.attempt": 7}),
        otel_span(5, of(AttemptKey("ro-unknown", 1))),
        otel_span(6, of(claim.key), trace_id=b"short"),
        otel_span(7, of(claim.key), span_id=bytes(8)),
        otel_span(8, of(claim.key), end_time_unix_nano=2**64 - 1),
    ]
    status, reply = send(fast.client(), export(spans))
    assert (status, reply.partial_success.rejected_spans) == (200, 7)
    for part in (
        "no rollout is named",
        "no attempt is named",
        "no attempt 7",
        "ro-unknown",
        "trace id",
    ):
        assert part in reply.partial_success.error_message
    assert [item.name for item in fast.store.spans([claim.key.rollout_id])] == ["step 1"]


def test_an_attempts_token_is_good_for_its_own_spans_only(fast, claim, run_id):
    fast.store.enqueue(run_id, [request()])
    (other,) = fast.store.claim(run_id, "w")
    spans = [otel_span(1, of(claim.key)), otel_span(2, of(other.key))]
    status, reply = send(fast.client(claim.token), export(spans))
    assert (status, reply.partial_success.rejected_spans) == (200, 1)
    assert other.key.rollout_id in reply.partial_success.error_message
    assert list(fast.store.spans([other.key.rollout_id])) == []
    assert send(fast.client(claim.token), export(spans[1:]))[0] == 401


@pytest.mark.parametrize(
    ("status", "code", "change"),
    [
        (401, 16, {"authorization": None}),
        (401, 16, {"authorization": "Bearer agl-" + "0" * 64}),
        (403, 7, {"token": "runner"}),
        (405, 12, {"method": "GET"}),
        (415, 3, {"content_type": "application/json"}),
        (415, 3, {"content_encoding": "br"}),
        (400, 3, {"content_encoding": "gzip"}),
        (400, 3, {"exported": b"\xff\xff\xff"}),
    ],
)
def test_a_refusal_is_a_status_message_of_its_own(fast, claim, status, code, change):
    exported = change.pop("exported", export([otel_span()], **of(claim.key)))
    if change.get("token") == "runner":
        change["token"] = fast.store.access_token("runner")
    answered, refusal = send(fast.client(), exported, **change)
    assert (answered, refusal.rejected_spans) == (status, code)  # a Status has its code there
    assert refusal.error_message
    assert list(fast.store.spans([claim.key.rollout_id])) == []


def test_json_is_refused_with_what_to_set(fast):
    _, refusal = send(fast.client(), b"{}", content_type="application/json")
    assert "http/protobuf" in refusal.error_message


def test_no_spans_are_no_mistake(fast):
    assert send(fast.client(), export([]))[0] == 200
    assert send(fast.client(), b"")[0] == 200


def test_damaged_exports_are_refused_or_hold_no_span_and_never_fail(fast, claim):
    dice, client = random.Random(1), fast.client()
    whole = export([otel_span(n, {"a": [1, "x"]}) for n in range(1, 4)]).SerializeToString()
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(dice.randrange(1, 8)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        cut = bytes(damaged[: dice.randrange(len(damaged) + 1)])
        assert client.send(PATH, dice.choice([cut, bytes(damaged)]), content_type=PROTOBUF)[0] in (
            200,
            400,
        )
    assert list(fast.store.spans([claim.key.rollout_id])) == []
