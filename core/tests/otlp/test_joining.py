"""Spans of other tracers find the attempt they were made for, and count no call twice."""

from __future__ import annotations

import os
import subprocess
import sys

import agentlightning as agl
import openai
import pytest
from agentlightning.recording import seam
from agentlightning.recording.attempt import attempt
from agentlightning.recording.sink import Sink
from agentlightning.records import Outcome, Passthrough
from agentlightning.samples.calls import recorded_calls
from agentlightning.store import Result
from agentlightning.testing.store.making import request
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry import context, propagate


@pytest.fixture
def claim(store):
    run = store.create_run("run", {})
    store.enqueue(run.run_id, [request()])
    (claim,) = store.claim(run.run_id, "worker")
    return claim


@pytest.fixture
def recorded(store, claim):
    """An attempt of the store, recorded by the seam."""
    sink = Sink(store)
    seam.install()
    with attempt(claim, sink, resolve=lambda _: Passthrough(reason="test")) as running:
        yield running
    seam.uninstall()
    sink.close()
    store.finish([Result(key=claim.key, outcome=Outcome(status="succeeded"))])


def test_there_is_no_trace_to_continue_outside_a_rollout():
    assert agl.trace_headers() == {}


def test_spans_that_continue_the_trace_hang_where_it_was_taken(store, claim, recorded, exporting):
    tracer = exporting(claim.token).get_tracer("mine")
    with agl.operation("search"):
        token = context.attach(propagate.extract(agl.trace_headers()))
        with tracer.start_as_current_span("inner"):
            pass
        context.detach(token)
    recorded.sink.flush()
    spans = {span.name: span for span in store.spans([claim.key.rollout_id])}
    assert spans["inner"].parent_id == spans["search"].span_id
    assert spans["inner"].trace_id == recorded.trace_id


CHILD = """
import os
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
parent = propagate.extract({"traceparent": os.environ["TRACEPARENT"]})
with provider.get_tracer("child").start_as_current_span("in the child", context=parent):
    pass
provider.shutdown()
"""


def test_a_child_process_continues_the_trace_after_the_agent_is_done(store, claim, recorded, receiver):
    environment = {
        **os.environ,
        "TRACEPARENT": agl.trace_headers()["traceparent"],
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{claim.token}",
    }
    store.finish([Result(key=claim.key, outcome=Outcome(status="succeeded"))])
    subprocess.run([sys.executable, "-c", CHILD], env=environment, check=True, timeout=60)
    assert [span.name for span in store.spans([claim.key.rollout_id])] == ["in the child"]


@pytest.fixture
def instrumentor():
    """OpenInference's; what it leaves on the clients' classes when it is gone is removed."""
    made = OpenAIInstrumentor()
    yield made
    for owner in (openai.OpenAI, openai.AsyncOpenAI):
        if "request" in vars(owner):  # the base's method, put where it never was
            del owner.request


def test_a_call_that_two_tracers_tell_of_is_one_call(
    store, claim, recorded, exporting, model_server, instrumentor
):
    instrumentor.instrument(tracer_provider=exporting(claim.token))
    token = context.attach(propagate.extract(agl.trace_headers()))
    try:
        client = openai.OpenAI(base_url=model_server.url, api_key="sk-never-stored-anywhere")
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    finally:
        context.detach(token)
        instrumentor.uninstrument()
    recorded.sink.flush()
    spans = list(store.spans([claim.key.rollout_id]))
    assert sorted((span.name, span.kind) for span in spans) == [
        ("ChatCompletion", "other"),
        ("chat m", "llm"),
    ]
    assert len(recorded_calls(spans)) == 1
    assert "sk-never" not in str(spans)
