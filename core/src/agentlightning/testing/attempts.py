"""Attempts written by hand: spans as recording would have made them, without running an agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from agentlightning import semconv
from agentlightning.records import (
    JSON,
    Choice,
    Floats,
    LLMCall,
    Rollout,
    RolloutStatus,
    Span,
    SpanEvent,
    SpanKind,
    Tokens,
)

ROOT = "0" * 15 + "1"
_TRACE = "0" * 31 + "1"
_TICK = 10


class AttemptBuilder:
    """Builds a rollout and the spans of its latest attempt, step by step.

    Each step starts later than the one before, unless times are given. ``spans`` is what a store
    would give back.

    Example:
        >>> made = AttemptBuilder("r1")
        >>> first = made.call([1, 2], [3])
        >>> _ = made.reward(1.0)
        >>> [span.kind for span in made.spans]
        ['agent', 'llm', 'reward']
    """

    def __init__(
        self,
        rollout_id: str = "r1",
        *,
        status: RolloutStatus = "succeeded",
        attempt: int = 1,
        **fields: Any,
    ) -> None:
        defaults: dict[str, Any] = {"run_id": "run", "input": None, "mode": "train", "created_at": 0.0}
        self.rollout = Rollout(
            rollout_id=rollout_id, status=status, attempt=attempt, **(defaults | fields)
        )
        self.spans: list[Span] = []
        self._clock = 0
        self._seq = 0
        self.span("agent", "agent", span_id=ROOT, parent_id=None, start_ns=0, end_ns=2**60)

    def span(self, kind: SpanKind, name: str, **fields: Any) -> Span:
        """Any span; a child of the root that takes one moment, unless ``fields`` say otherwise."""
        self._clock += _TICK
        made = Span(
            **{
                "rollout_id": self.rollout.rollout_id,
                "attempt": self.rollout.attempt,
                "span_id": f"{len(self.spans) + 1:016x}",
                "trace_id": _TRACE,
                "kind": kind,
                "name": name,
                "parent_id": ROOT,
                "start_ns": self._clock,
                "end_ns": self._clock,
                "index": len(self.spans),
                **fields,
            }
        )
        self.spans.append(made)
        return made

    def agent(self, name: str, **fields: Any) -> Span:
        """The span of an agent of a framework."""
        return self.span("agent", name, attributes={semconv.AGENT_NAME: name}, **fields)

    def call(
        self,
        prompt: Iterable[int] | None,
        *responses: Iterable[int] | None,
        logprobs: Sequence[Iterable[float]] | None = None,
        agent: str | None = None,
        span: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Span:
        """An LLM call with one choice for each of ``responses``; ``None`` for unknown token ids.

        Args:
            prompt: token ids.
            responses: token ids of each choice.
            logprobs: of each choice; None if the model server returned none.
            agent: who made it.
            span: fields of the span, where they matter.
            fields: fields of the :class:`LLMCall`, where they matter.
        """
        self._seq += 1
        choices = tuple(
            Choice(
                index=index,
                response_ids=None if ids is None else Tokens(ids),
                logprobs=None if logprobs is None else Floats(logprobs[index]),
                finish_reason="stop",
            )
            for index, ids in enumerate(responses)
        )
        call = LLMCall(
            **{
                "seq": self._seq,
                "api": "chat",
                "model": "policy",
                "base_url": "http://model.test/v1",
                "request": {},
                "prompt_ids": None if prompt is None else Tokens(prompt),
                "choices": choices,
                "agent": agent,
                **fields,
            }
        )
        return self.span("llm", "chat policy", call=call, **(span or {}))

    def failed_call(self, error: str, **fields: Any) -> Span:
        """An LLM call that the model server refused."""
        return self.call(None, complete=False, error=error, **fields)

    def reward(
        self,
        value: JSON,
        *,
        name: str = "reward",
        source: str = "emitted",
        agent: str | None = None,
        step: str | None = None,
        version: str = "agent",
        **fields: Any,
    ) -> Span:
        """A reward; the rollout's outcome unless it names an agent or the span of a step."""
        attributes: dict[str, JSON] = {
            semconv.REWARD_NAME: name,
            semconv.REWARD_VALUE: value,
            semconv.REWARD_SOURCE: source,
            semconv.REWARD_VERSION: version,
        }
        if agent is not None:
            attributes[semconv.REWARD_AGENT] = agent
        if step is not None:
            attributes[semconv.REWARD_SPAN] = step
        return self.span("reward", name, attributes=attributes, **fields)

    def failed(self, kind: str, message: str) -> None:
        """The attempt ended with this exception."""
        event = SpanEvent(
            name="exception",
            time_ns=self._clock,
            attributes={semconv.EXCEPTION_TYPE: kind, semconv.EXCEPTION_MESSAGE: message},
        )
        self.rollout = msgspec.structs.replace(self.rollout, status="failed")
        self.spans = [
            msgspec.structs.replace(span, status="error", events=(event,))
            if (span.span_id, span.attempt) == (ROOT, self.rollout.attempt)
            else span
            for span in self.spans
        ]

    def retried(self) -> None:
        """What was built so far was the attempt before; go on with the next one."""
        self.rollout = msgspec.structs.replace(self.rollout, attempt=self.rollout.attempt + 1)
        self.span("agent", "agent", span_id=ROOT, parent_id=None, start_ns=0, end_ns=2**60)
