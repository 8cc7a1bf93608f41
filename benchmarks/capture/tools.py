"""What is measured: the client alone, and the client with each tool that records its calls.

The two instrumentors get what they are usually given, OpenTelemetry's SDK and its batch processor, and
an exporter that throws the spans away: what writing them somewhere costs is not counted. Ours writes
every call into a SQLite file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

Flush: TypeAlias = Callable[[], object]
"""Brings to an end what a tool does in the background."""

NONE: Final = "none"


@contextmanager
def none() -> Iterator[Flush]:
    """Nothing records."""
    yield lambda: None


@contextmanager
def agentlightning() -> Iterator[Flush]:
    """One rollout, recorded into a SQLite file."""
    from agentlightning import Tracer
    from agentlightning.recording.context import current_rollout

    with TemporaryDirectory(prefix="bench-") as folder:
        store = f"sqlite:///{Path(folder, 'bench.db')}"
        with Tracer(store).trace("bench"):
            context = current_rollout()
            if context is None:
                raise AssertionError("a Tracer makes a rollout")
            yield context.sink.flush


@contextmanager
def openinference() -> Iterator[Flush]:
    """``openinference-instrumentation-openai``."""
    from openinference.instrumentation.openai import OpenAIInstrumentor

    with _instrumented(OpenAIInstrumentor()) as flush:
        yield flush


@contextmanager
def traceloop() -> Iterator[Flush]:
    """``opentelemetry-instrumentation-openai``, as OpenLLMetry uses it."""
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    with _instrumented(OpenAIInstrumentor()) as flush:
        yield flush


@contextmanager
def _instrumented(instrumentor: Any) -> Iterator[Flush]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:  # noqa: ARG002 - thrown away
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    instrumentor.instrument(tracer_provider=provider)
    try:
        yield provider.force_flush
    finally:
        instrumentor.uninstrument()
        provider.shutdown()


TOOLS: Final[dict[str, Callable[[], AbstractContextManager[Flush]]]] = {
    NONE: none,
    "agentlightning": agentlightning,
    "openinference": openinference,
    "traceloop": traceloop,
}
