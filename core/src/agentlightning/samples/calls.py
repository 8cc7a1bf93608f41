"""The LLM calls of a rollout's final attempt, each with the agent that made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agentlightning import semconv
from agentlightning.records import LLMCall, Rollout, Span


class RecordedCall(NamedTuple):
    """One LLM call, the span it was recorded in, and the agent that made it, if known."""

    span: Span
    call: LLMCall
    agent: str | None


def final_spans(rollout: Rollout, spans: Sequence[Span]) -> list[Span]:
    """The spans of the rollout's latest attempt; those of earlier ones are not training data."""
    key = rollout.key
    return [span for span in spans if (span.rollout_id, span.attempt) == key]


def recorded_calls(spans: Sequence[Span]) -> list[RecordedCall]:
    """The calls among one attempt's spans, in the order of ``seq``.

    A span below another call's is one try of that call, sent again by the client's own retries: it
    is no call of its own. Clocks and arrival decide only between equal numbers.
    """
    by_id = {span.span_id: span for span in spans}
    agents = [span for span in spans if span.kind == "agent" and span.parent_id is not None]
    found = [
        RecordedCall(span, span.call, _agent_of_call(span, span.call, by_id, agents))
        for span in spans
        if span.call is not None and not is_retry(span, by_id)
    ]
    return sorted(found, key=lambda item: (item.call.seq, item.span.start_ns, item.span.index))


def is_retry(span: Span, by_id: Mapping[str, Span]) -> bool:
    """Whether this LLM span is a try of the call it lies below."""
    parent = by_id.get(span.parent_id or "")
    return span.call is not None and parent is not None and parent.call is not None


def enclosing_agent(span: Span, by_id: Mapping[str, Span]) -> str | None:
    """The name of the nearest agent span above; the attempt's own span names no agent."""
    for above in _ancestors(span, by_id):
        if above.kind == "agent" and above.parent_id is not None:
            return agent_name(above)
    return None


def agent_name(span: Span) -> str:
    """The name an agent span gives its agent."""
    return str(span.attributes.get(semconv.AGENT_NAME) or span.name)


def _agent_of_call(
    span: Span, call: LLMCall, by_id: Mapping[str, Span], agents: Sequence[Span]
) -> str | None:
    return call.agent or enclosing_agent(span, by_id) or _only_agent_at_work(span, by_id, agents)


def _only_agent_at_work(span: Span, by_id: Mapping[str, Span], agents: Sequence[Span]) -> str | None:
    """The innermost agent span open during the whole call, if all others open lie around it.

    Some frameworks hang LLM spans under the root, so that neither name nor parent tells the agent.
    With two agents side by side time cannot tell either, and the agent stays unknown.
    """
    at_work = [
        agent for agent in agents if agent.start_ns <= span.start_ns and span.end_ns <= agent.end_ns
    ]
    for agent in at_work:
        around = {above.span_id for above in _ancestors(agent, by_id)}
        if all(other is agent or other.span_id in around for other in at_work):
            return agent_name(agent)
    return None


def _ancestors(span: Span, by_id: Mapping[str, Span]) -> Iterator[Span]:
    seen = {span.span_id}
    above = by_id.get(span.parent_id or "")
    while above is not None and above.span_id not in seen:  # foreign spans may form a circle
        seen.add(above.span_id)
        yield above
        above = by_id.get(above.parent_id or "")
