"""LLM calls rebuilt from what other tracers wrote: messages and tools, never exact tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from agentlightning import semconv
from agentlightning.errors import BadValue
from agentlightning.llm_api import llm_span, read_call
from agentlightning.otlp.genai import genai
from agentlightning.otlp.openinference import openinference
from agentlightning.otlp.told import Told
from agentlightning.records import JSON, AttemptKey, LLMCall, Span

_STREAMED: Final = ("gen_ai.is_streaming", "gen_ai.request.stream", "llm.is_streaming")


def with_call(span: Span, *, seq: int, agent: str | None) -> Span:
    """An LLM span of another tracer with the call it tells of.

    The call has no token ids, so that SFT and prompt optimisation can use it and RL cannot. Attributes
    whose content is in the call are left out.

    Args:
        span: the span, with the attributes of any convention.
        seq: the place of the call in its attempt.
        agent: who made it, if known.

    Raises:
        BadValue: the attributes do not tell what was asked.
    """
    told = openinference(span.attributes) or genai(span.attributes, span.events)
    if not told.has_prompt:
        raise BadValue(
            "an LLM span without its prompt; switch the capture of content on where it was recorded"
        )
    call = _call(told, span, seq, agent)
    made = llm_span(
        call,
        key=AttemptKey(span.rollout_id, span.attempt),
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_id=span.parent_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        attributes=_rest(told, span.attributes),
    )
    return replace(made, name=span.name, events=span.events)


def _call(told: Told, span: Span, seq: int, agent: str | None) -> LLMCall:
    response = told.response()
    error = _error(span) if span.status == "error" else None
    if response is None and error is None:
        error = "the reply was not captured where the call was recorded"
    parameters = told.parameters
    streamed = [span.attributes.get(name) for name in _STREAMED]
    call = read_call(
        seq=seq,
        api=told.api,
        agent=agent,
        base_url=told.base_url,
        request=told.request(),
        response=response,
        model_version=_whole(span.attributes.get(semconv.MODEL_VERSION)),
        retries=_whole(span.attributes.get(semconv.RETRIES)) or 0,
        streamed=any(value is True for value in (*streamed, parameters.get("stream"))),
        error=error,
    )
    return _without_tokens(call)


def _without_tokens(call: LLMCall) -> LLMCall:
    """Ids that another tracer may have passed on were not checked against anything."""
    choices = tuple(replace(choice, response_ids=None, logprobs=None) for choice in call.choices)
    return replace(call, prompt_ids=None, choices=choices)


def _whole(value: JSON) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _error(span: Span) -> str:
    found = [event.attributes.get(semconv.EXCEPTION_MESSAGE) for event in span.events]
    found += [span.attributes.get(name) for name in ("otel.status_description", "error.type")]
    return next((str(text) for text in found if text), "the call failed")


def _rest(told: Told, attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    beginnings = tuple(part for part in told.parts if part.endswith("."))
    return {
        name: value
        for name, value in attributes.items()
        if name not in told.parts and not name.startswith(beginnings)
    }
