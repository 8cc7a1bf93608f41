"""Another tracer's provider, a store behind a real server that takes what it exports, and files."""

from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from agentlightning.otlp import read_traces
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


class Collector:
    """An OTLP/HTTP receiver that answers as a test says."""

    def __init__(self):
        self.requests = []
        self.answers = []
        self.delay = threading.Event()
        self.delay.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.delay.wait(30)
                body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append((self.path, dict(self.headers.items()), read_traces(body)))
                status, reply = outer.answers.pop(0) if outer.answers else (200, b"")
                self.send_response(status)
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                """Not on standard error."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def exports(self):
        """The spans of each request."""
        return [export.resource_spans[0].scope_spans[0].spans for _, _, export in self.requests]

    def close(self):
        self.delay.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector():
    with contextlib.closing(Collector()) as running:
        yield running
