"""Spans, LLM calls and rewards: what an attempt did, step by step."""

from __future__ import annotations

from typing import Final, Literal

from agentlightning.records.base import Int64, Part, Record
from agentlightning.records.codec import JSON
from agentlightning.records.packed import Floats, Tokens

SpanKind = Literal[
    "agent",
    "llm",
    "tool",
    "reward",
    "message",
    "object",
    "exception",
    "operation",
    "annotation",
    "other",
]
SpanStatus = Literal["ok", "error", "unset"]
Api = Literal["chat", "completions", "responses", "messages"]
AGENT_VERSION: Final = "agent"
"""The version of the rewards that belong to a run from the start; a re-score adds others."""

RewardSource = Literal["function", "returned", "emitted"]


class SpanEvent(Part, frozen=True, kw_only=True):
    """Something that happened within a span, at one moment."""

    name: str
    time_ns: Int64
    attributes: dict[str, JSON] = {}


class Choice(Part, frozen=True, kw_only=True):
    """One reply of a model: the message in the protocol's own shape and, where known, its tokens.

    ``logprobs`` are natural logarithms of the probability each of ``response_ids`` was sampled with.
    """

    index: Int64 = 0
    message: dict[str, JSON] = {}
    response_ids: Tokens | None = None
    logprobs: Floats | None = None
    finish_reason: str | None = None


class LLMCall(Part, frozen=True, kw_only=True):
    """One request to a model: as sent, as received, and its exact tokens where known.

    ``seq`` is the order within the attempt, given when the request starts. ``complete`` is false for
    an error, an abandoned stream or a reply that could not be read; such a call is never trained on.
    """

    seq: Int64
    api: Api
    model: str
    base_url: str
    request: dict[str, JSON]
    response: dict[str, JSON] | None = None
    agent: str | None = None
    model_version: Int64 | None = None
    response_id: str | None = None
    streamed: bool = False
    complete: bool = True
    retries: Int64 = 0
    temperature: float | None = None
    usage: dict[str, JSON] | None = None
    error: str | None = None
    prompt_ids: Tokens | None = None
    choices: tuple[Choice, ...] = ()


class Span(Record, frozen=True, kw_only=True):
    """One step of an attempt, in OpenTelemetry's shape.

    ``index`` is the order of arrival, given by the store (0 until stored). ``span_id`` is 16 and
    ``trace_id`` 32 hexadecimal digits. Times are nanoseconds since the epoch.
    """

    rollout_id: str
    attempt: Int64
    span_id: str
    trace_id: str
    kind: SpanKind
    name: str
    start_ns: Int64
    end_ns: Int64
    index: Int64 = 0
    parent_id: str | None = None
    status: SpanStatus = "unset"
    attributes: dict[str, JSON] = {}
    events: tuple[SpanEvent, ...] = ()
    call: LLMCall | None = None


class Reward(Part, frozen=True, kw_only=True):
    """A number that says how well it went, read from a reward span.

    ``span_id`` is the step it belongs to, None for the rollout's outcome. A re-score adds rewards of
    another ``version`` beside the old ones.
    """

    rollout_id: str
    attempt: Int64
    value: float
    name: str = "reward"
    agent: str | None = None
    span_id: str | None = None
    version: str = AGENT_VERSION
    source: RewardSource = "emitted"
