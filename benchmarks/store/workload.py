"""What the stores are given: spans as an agent makes them, and the calls of a long conversation."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agentlightning.records import (
    AttemptKey,
    Choice,
    Floats,
    LLMCall,
    RolloutConfig,
    RolloutRequest,
    Span,
    Tokens,
)
from agentlightning.store import Store

BATCH = 1000
"""Spans a call: what a runner's sink sends when it is busy."""

SPANS_EACH = 1000
AT_WORK = 10
"""Attempts that run at a time and send their spans by turns."""

TRACE = "0" * 31 + "1"
VOCABULARY = 151_643
TURNS = 32
CONTEXT = 8192
INSTRUCTIONS = 1024
"""Tokens of the system prompt and the tools, which an agent sends with every call."""

ENQUEUED_AT_ONCE = 1000
LONG_LEASE = RolloutConfig(lease_s=24 * 3600)

ATTRIBUTES = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.agent.name",
    "gen_ai.agent.id",
    "gen_ai.conversation.id",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured; a stage is a number of whole groups of attempts, and figures name it."""

    stages: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    repeats: int = 5
    spans: int = 50_000
    rollouts: int = 2000
    reads: int = 21


FULL = Sizes()
QUICK = Sizes(stages=(10_000, 20_000), repeats=3, spans=10_000, rollouts=500, reads=9)


def begun(store: Store, count: int) -> list[AttemptKey]:
    """The attempts of ``count`` rollouts of a new run, claimed and with nothing recorded yet."""
    run_id = queued(store, count)
    claims = store.claim(run_id, "bench", limit=count)
    return [claim.key for claim in claims]


def queued(store: Store, count: int) -> str:
    """A new run with ``count`` rollouts to claim."""
    run_id = store.create_run("bench", {}).run_id
    requests = [
        RolloutRequest(input={"question": f"What is {n} + {n}?"}, config=LONG_LEASE)
        for n in range(count)
    ]
    for start in range(0, count, ENQUEUED_AT_ONCE):
        store.enqueue(run_id, requests[start : start + ENQUEUED_AT_ONCE])
    return run_id


def batches(keys: Sequence[AttemptKey]) -> Iterator[list[Span]]:
    """The spans of these attempts in bulk, 1,000 an attempt.

    They arrive mixed, as from a busy runner: no rollout's spans lie together in the store.
    """
    for start in range(0, len(keys), AT_WORK):
        group = keys[start : start + AT_WORK]
        mixed = (span(key, number) for number in range(SPANS_EACH) for key in group)
        while batch := list(islice(mixed, BATCH)):
            yield batch


def span(key: AttemptKey, number: int) -> Span:
    """A span with 12 attributes whose values are text, each different from all others."""
    place = f"{number} of {key.rollout_id}"
    return Span(
        rollout_id=key.rollout_id,
        attempt=key.number,
        span_id=f"{number + 1:016x}",
        trace_id=TRACE,
        kind="tool",
        name="search",
        start_ns=number,
        end_ns=number + 1,
        attributes={name: f"{index}: {place}" for index, name in enumerate(ATTRIBUTES)},
    )


def conversation(key: AttemptKey, *, with_tokens: bool = True) -> list[Span]:
    """An attempt of 32 turns that fills a context of 8k: every prompt repeats all that came before.

    It begins with the instructions, and grows evenly, by as many tokens of answers of tools as of the
    model. Ids are drawn by chance: nothing in them can be compressed but what is repeated.
    """
    chance = random.Random(0)
    step = (CONTEXT - INSTRUCTIONS) // TURNS // 2
    context = chance.choices(range(VOCABULARY), k=INSTRUCTIONS)
    messages = [{"role": "system", "content": _text(chance, INSTRUCTIONS)}]
    spans = []
    for turn in range(TURNS):
        context += chance.choices(range(VOCABULARY), k=step)
        messages.append({"role": "user", "content": _text(chance, step)})
        sampled = chance.choices(range(VOCABULARY), k=step)
        reply = {"role": "assistant", "content": _text(chance, step)}
        call = LLMCall(
            seq=turn,
            api="chat",
            model="policy",
            base_url="http://127.0.0.1:8000/v1",
            request={"model": "policy", "messages": list(messages), "temperature": 1.0},
            response={"id": f"chat-{turn}", "choices": [{"index": 0, "message": reply}]},
            prompt_ids=Tokens(context) if with_tokens else None,
            choices=(_choice(reply, sampled, chance, with_tokens=with_tokens),),
        )
        spans.append(_llm_span(key, turn, call))
        context += sampled
        messages.append(reply)
    return spans


def _choice(
    reply: dict[str, str], sampled: list[int], chance: random.Random, *, with_tokens: bool
) -> Choice:
    return Choice(
        message=reply,
        response_ids=Tokens(sampled) if with_tokens else None,
        logprobs=Floats([-chance.random() for _ in sampled]),
        finish_reason="stop",
    )


def _llm_span(key: AttemptKey, turn: int, call: LLMCall) -> Span:
    return Span(
        rollout_id=key.rollout_id,
        attempt=key.number,
        span_id=f"{turn + 1:016x}",
        trace_id=TRACE,
        kind="llm",
        name="chat policy",
        start_ns=turn,
        end_ns=turn + 1,
        call=call,
    )


def _text(chance: random.Random, tokens: int) -> str:
    """As much text as these tokens are, about four characters each."""
    return " ".join(f"{chance.randrange(1000):03d}" for _ in range(tokens))
