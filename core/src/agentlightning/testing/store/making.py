"""What the conformance tests are made of: a clock to turn, and records that need few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentlightning.records import (
    AttemptKey,
    Choice,
    Floats,
    LLMCall,
    Outcome,
    OutcomeStatus,
    RolloutConfig,
    RolloutRequest,
    Span,
    SpanEvent,
    Tokens,
)
from agentlightning.store import Claim, Result, Store

SUCCEEDED = Outcome(status="succeeded", output={"answer": 42})
FAILED = Outcome(status="failed", error="ValueError: no")
TIMED_OUT = Outcome(status="timed_out", error="took more than 5 s")


class Clock:
    """A time that stands still until a test moves it."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number sets the clock back."""
        self.now += seconds


def request(task: Any = "task", **fields: Any) -> RolloutRequest:
    """A request; the fields of ``RolloutConfig`` may be given beside those of the request."""
    names = set(RolloutConfig.__struct_fields__)
    config = {name: fields.pop(name) for name in names & fields.keys()}
    return RolloutRequest(input=task, config=RolloutConfig(**config), **fields)


def span(key: AttemptKey, number: int = 1, **fields: Any) -> Span:
    """A small span of an attempt; ``number`` makes its id."""
    defaults: dict[str, Any] = {
        "kind": "operation",
        "name": f"step {number}",
        "start_ns": number,
        "end_ns": number + 1,
        "span_id": f"{number:016x}",
        "trace_id": "0" * 31 + "1",
    }
    return Span(rollout_id=key.rollout_id, attempt=key.number, **(defaults | fields))


def rich_span(key: AttemptKey) -> Span:
    """A span with every field set, and every kind of JSON value somewhere inside."""
    return span(
        key,
        77,
        kind="llm",
        parent_id="0" * 15 + "1",
        status="error",
        attributes={"text": 'naïve 🦊 "quoted" \\ \n\0', "list": [1, -2.5, None, True], "empty": {}},
        events=(SpanEvent(name="exception", time_ns=5, attributes={"exception.type": "KeyError"}),),
        call=LLMCall(
            seq=3,
            api="chat",
            model="small",
            base_url="http://127.0.0.1:1/v1",
            request={"messages": [{"role": "user", "content": "日本"}], "seed": 2**63 - 1},
            response={"id": "r1", "choices": []},
            agent="writer",
            model_version=4,
            response_id="r1",
            streamed=True,
            complete=False,
            retries=2,
            temperature=0.7,
            usage={"total_tokens": 5},
            error="the stream ended early",
            prompt_ids=Tokens([0, 1, 151_643, 2**32 - 1]),
            choices=(
                Choice(
                    index=1,
                    message={"role": "assistant", "content": ""},
                    response_ids=Tokens([7, 8]),
                    logprobs=Floats([-0.25, -1.5]),
                    finish_reason="stop",
                ),
            ),
        ),
    )


def result(claim: Claim, outcome: Outcome = SUCCEEDED, spans: Sequence[Span] = ()) -> Result:
    """The end of a claimed attempt."""
    return Result(key=claim.key, outcome=outcome, spans=tuple(spans))


def ended(claim: Claim, status: OutcomeStatus) -> Result:
    """The end of a claimed attempt by its status only."""
    return Result(key=claim.key, outcome=Outcome(status=status))


def claimed(store: Store, run_id: str, given: RolloutRequest | None = None) -> Claim:
    """A rollout queued and claimed at once."""
    (rollout,) = store.enqueue(run_id, [given or request()])
    (claim,) = [c for c in store.claim(run_id, "worker") if c.rollout.rollout_id == rollout.rollout_id]
    return claim
