"""Agents under other people's instrumentors, in a process of its own: some cannot be taken off again.

Run as ``traced_agents.py INSTRUMENTORS URL FOLDER``; writes a file of OTLP for each scenario.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

import openai
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds numbers",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    },
}
TASK = '[[tool:add:{"a": 1};;say:two]]'
SYSTEM = {"role": "system", "content": "be brief"}
KEY = "sk-never-stored-anywhere"


class Files(SpanExporter):
    """Writes each batch to a file in each of the shapes that files of OTLP have."""

    def __init__(self, folder):
        self.folder = folder
        self.name = ""

    def export(self, spans):
        request = encode_spans(spans)
        body = request.SerializeToString()
        for shape, written in (
            ("json", json.dumps(hexed(MessageToDict(request))).encode() + b"\n"),
            ("protobuf", body),  # messages one after the other are one message
            ("delimited", len(body).to_bytes(4, "big") + body),
        ):
            with (self.folder / f"{self.name}.{shape}").open("ab") as file:
                file.write(written)
        return SpanExportResult.SUCCESS


def hexed(value, name=""):
    """Ids as the collector writes them."""
    if isinstance(value, dict):
        return {key: hexed(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [hexed(item) for item in value]
    return base64.b64decode(value).hex() if name in ("traceId", "spanId", "parentSpanId") else value


def assistant(client, tracer, task=TASK, *, session=None, score=None):
    """An agent that calls a tool."""
    with tracer.start_as_current_span("shop assistant") as root:
        root.set_attributes({"openinference.span.kind": "AGENT", "input.value": task})
        if session is not None:
            root.set_attribute("session.id", session)
        messages = [SYSTEM, {"role": "user", "content": task}]
        while True:
            reply = client.chat.completions.create(
                model="m", messages=messages, tools=[TOOL], temperature=0.5
            )
            message = reply.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break
            with tracer.start_as_current_span("add") as tool:
                tool.set_attributes({"openinference.span.kind": "TOOL", "tool.name": "add"})
                tool.set_attributes({"input.value": '{"a": 1}', "output.value": "2"})
            messages.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "2"})
        root.set_attribute("output.value", message.content)
        if score is not None:
            root.set_attribute("eval.correct", score)


def longer(client, tracer):
    assistant(client, tracer, "[[say:more]]")


def protocols(client, tracer):
    with tracer.start_as_current_span("all"):
        client.responses.create(model="m", input="hello", instructions="be brief")
        list(client.chat.completions.create(model="m", messages=[SYSTEM], stream=True))
        client.completions.create(model="m", prompt="say")


def failing(client, tracer):
    try:
        with tracer.start_as_current_span("agent"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "FAIL500"}])
    except openai.InternalServerError:
        pass


def sessions(client, tracer):
    for text, session in [("one", "a"), ("two", "b"), ("three", "a")]:
        assistant(client, tracer, f"[[say:{text}]]", session=session)


def scored(client, tracer):
    for score in (0.25, True, "0.5", "good"):
        assistant(client, tracer, score=score)


def silent(client, tracer):
    os.environ["TRACELOOP_TRACE_CONTENT"] = "false"
    assistant(client, tracer)


def main(instrumentors, url, folder):
    exporter = Files(Path(folder))
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for name in instrumentors.split("+"):
        if name == "openinference":
            from openinference.instrumentation.openai import OpenAIInstrumentor
        else:
            from opentelemetry.instrumentation.openai import OpenAIInstrumentor
        OpenAIInstrumentor().instrument(tracer_provider=provider)
    client = openai.OpenAI(
        base_url=url, api_key=KEY, max_retries=0, default_headers={"x-api-key": f"{KEY}-too"}
    )
    for scenario in (assistant, longer, protocols, failing, sessions, scored, silent):
        exporter.name = scenario.__name__
        scenario(client, provider.get_tracer("shop"))


if __name__ == "__main__":
    main(*sys.argv[1:])
