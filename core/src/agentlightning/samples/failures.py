"""What a span that failed says about it."""

from __future__ import annotations

from agentlightning import semconv
from agentlightning.records import Span


def failure_of(span: Span) -> str | None:
    """The exception a span ended with, as ``Type: message``; None if there was none."""
    for event in span.events:
        if kind := event.attributes.get(semconv.EXCEPTION_TYPE):
            name = str(kind).removeprefix("builtins.").removeprefix("agentlightning.errors.")
            message = event.attributes.get(semconv.EXCEPTION_MESSAGE) or ""
            return f"{name}: {message}" if message else name
    return None
