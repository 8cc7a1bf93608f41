"""Rollouts go to a collector while a run goes on; a bad collector costs the run nothing."""

from __future__ import annotations

import logging
import time

import pytest
from agentlightning.errors import ConfigError
from agentlightning.otlp import Exporter, Target, target_of
from agentlightning.records import Outcome, Rollout, Run
from agentlightning.store import Result
from agentlightning.testing.store.making import request, span
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

RUN = Run(run_id="run-1", name="mine", config={}, created_at=0.0)


@pytest.fixture
def finished(store):
    """A rollout that is over, and its spans."""
    run = store.create_run("run", {})
    store.enqueue(run.run_id, [request()])
    (claim,) = store.claim(run.run_id, "worker")
    spans = tuple(span(claim.key, number) for number in range(1, 4))
    (rollout,) = store.finish([Result(key=claim.key, outcome=Outcome(status="succeeded"), spans=spans)])
    return rollout, list(store.spans([rollout.rollout_id]))


def names(export):
    return [item.name for item in export.resource_spans[0].scope_spans[0].spans]


def test_a_collector_gets_every_span_with_the_headers_it_asks_for(collector, finished):
    rollout, spans = finished
    with Exporter(Target(f"{collector.url}/v1/traces", {"x-team": "one"})) as exporter:
        exporter.add(RUN, rollout, spans)
    ((path, headers, export),) = collector.requests
    assert path == "/v1/traces"
    assert (headers["x-team"], headers["content-type"]) == ("one", "application/x-protobuf")
    assert len(names(export)) == 3
    resource = {
        item.key: item.value.string_value for item in export.resource_spans[0].resource.attributes
    }
    assert resource == {
        "service.name": "agentlightning",
        "agentlightning.run_id": "run-1",
        "agentlightning.run_name": "mine",
    }
    assert exporter.counts == {"sent": 3}


def test_our_own_server_takes_what_is_sent(store, receiver, finished):
    rollout, spans = finished
    headers = {"authorization": f"Bearer {store.access_token('owner')}"}
    with Exporter(Target(f"{receiver.url}/v1/traces", headers)) as exporter:
        exporter.add(RUN, rollout, spans)
    assert exporter.counts == {"sent": 3}
    assert len(list(store.spans([rollout.rollout_id]))) == 3  # the same spans, by their ids


def test_a_collector_that_is_busy_is_asked_again(collector, finished):
    collector.answers = [(503, b""), (200, b"")]
    with Exporter(Target(collector.url)) as exporter:
        exporter.add(RUN, *finished)
    assert len(collector.requests) == 2
    assert exporter.counts == {"sent": 3}


def test_what_is_refused_is_counted_and_told_once_without_secrets(collector, finished, caplog):
    partial = ExportTracePartialSuccess(rejected_spans=1, error_message="too old")
    said = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    collector.answers = [(401, b"who are you"), (200, said)]
    target = Target(f"{collector.url}/v1/traces?key=hush", {"key": "hush"})
    with caplog.at_level(logging.WARNING), Exporter(target) as exporter:
        exporter.add(RUN, *finished)
        exporter.add(RUN, *finished)
    assert exporter.counts == {"refused": 4, "sent": 2}
    assert exporter.trouble() == {"refused": 4}
    assert {path for path, _, _ in collector.requests} == {"/v1/traces?key=hush"}
    assert len(caplog.records) == 1
    assert "answers 401" in caplog.text
    assert "hush" not in caplog.text


def test_nobody_waits_for_a_collector_that_hangs_or_is_gone(collector, finished):
    collector.delay.clear()
    for url in (collector.url, "http://127.0.0.1:9"):
        exporter = Exporter(Target(url), close_s=0.1)
        began = time.monotonic()
        for _ in range(100):
            exporter.add(RUN, *finished)
        assert time.monotonic() - began < 1
        exporter.close()
        exporter.close()
        assert exporter.counts["lost"] >= 99 * 3
        exporter.add(RUN, *finished)  # too late, and counted too
        assert exporter.counts["lost"] >= 100 * 3 - 3


def test_what_waits_is_limited(collector, finished):
    rollout, spans = finished
    collector.delay.clear()
    exporter = Exporter(Target(collector.url), close_s=0.1)
    for _ in range(60):
        exporter.add(RUN, rollout, spans * 334)
    assert exporter.counts["lost"] > 0
    exporter.close()


def test_a_span_that_cannot_be_written_stops_nothing(collector, finished):
    rollout, spans = finished
    broken = Rollout(
        rollout_id="ro-1", run_id="run-1", input=1, mode="train", status="failed", created_at=0
    )
    with Exporter(Target(collector.url)) as exporter:
        exporter.add(RUN, broken, [object()])
        exporter.add(RUN, rollout, spans)
    assert exporter.counts == {"lost": 1, "sent": 3}


@pytest.mark.parametrize(
    ("told", "variables", "url"),
    [
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        (
            "http://c:4318/v1/traces",
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"},
            "http://c:4318/v1/traces",
        ),
        (True, {}, "http://localhost:4318/v1/traces"),
        (True, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d/base/"}, "http://d/base/v1/traces"),
        (True, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://d/mine"}, "http://d/mine"),
    ],
)
def test_the_target_is_what_was_said_or_what_opentelemetry_reads(monkeypatch, told, variables, url):
    for name, value in {**variables, "OTEL_EXPORTER_OTLP_HEADERS": "a=Bearer%20x,b=2"}.items():
        monkeypatch.setenv(name, value)
    target = target_of(told)
    assert (target.url, target.headers) == (url, {"a": "Bearer x", "b": "2"})
    assert "Bearer" not in repr(target)


@pytest.mark.parametrize(
    ("told", "variables", "message"),
    [
        ("collector:4317", {}, "no address of a collector"),
        ("http://me:pass@c", {}, "would be kept with the run"),
        (True, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf only"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_at_once(monkeypatch, told, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        target_of(told)


def test_nothing_is_sent_unless_asked_for(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://everywhere:4318")
    assert target_of(False) is None
