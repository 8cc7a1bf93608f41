"""Telling others which attempt they work for: the W3C trace context of the running code."""

from __future__ import annotations

from agentlightning.recording.context import current_rollout, current_span
from agentlightning.recording.guard import never_raises


@never_raises(dict[str, str])
def trace_headers() -> dict[str, str]:
    """``traceparent`` for whatever the agent calls or starts; empty outside a rollout.

    Spans of OpenTelemetry that continue this trace, in any process and language, belong to the attempt
    without naming it, and hang below the span that is open here. Send it along as HTTP headers, give it
    to a child process as the environment variable ``TRACEPARENT``, or let OpenTelemetry's own
    ``propagate.extract`` read it in this process.
    """
    context = current_rollout()
    if context is None:
        return {}
    return {"traceparent": f"00-{context.trace_id}-{current_span() or context.root_span_id}-01"}
