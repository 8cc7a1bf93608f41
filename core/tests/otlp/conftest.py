"""Another tracer's provider, a store behind a real server that takes what it exports, and files."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from agentlightning.server import Server, build_app
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.model_server import ModelServer
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

AGENTS = Path(__file__).with_name("traced_agents.py")


@pytest.fixture
def store():
    with MemoryStore() as opened:
        yield opened


@pytest.fixture
def receiver(store):
    """The store's server: where OTLP is sent to, and by whom it is taken."""
    server = Server(build_app(store=store))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def exporting(receiver):
    """Makes a provider of OpenTelemetry's own that sends to the receiver with a token."""
    with contextlib.ExitStack() as closing:

        def make(token):
            exporter = OTLPSpanExporter(
                f"{receiver.url}/v1/traces", headers={"authorization": f"Bearer {token}"}
            )
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(exporter))
            closing.callback(provider.shutdown)
            return provider

        yield make


@pytest.fixture
def model_server():
    with ModelServer() as running:
        yield running


@pytest.fixture(scope="session")
def traced(tmp_path_factory):
    """The folder of what real instrumentors wrote: each process runs once, when first asked for."""
    folders = {}

    def folder(instrumentors):
        if instrumentors not in folders:
            made = folders[instrumentors] = tmp_path_factory.mktemp("traces")
            with ModelServer() as server:
                subprocess.run(
                    [sys.executable, str(AGENTS), instrumentors, server.url, str(made)],
                    check=True,
                    timeout=120,
                )
        return folders[instrumentors]

    return folder
