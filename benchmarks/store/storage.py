"""How much a store keeps for a long conversation, beside the same as plain JSON.

The conversation has 32 turns and fills a context of 8k; each prompt repeats all that came before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from agentlightning.records import Span, to_builtins

from benchmarks.store import workload
from benchmarks.store.figures import Figure
from benchmarks.store.stage import Stage


def storing(stage: Stage, _sizes: workload.Sizes) -> Iterator[Figure]:
    """What plain JSON takes for the token ids, and for whole calls, over what the store's rows take.

    What the ids take is the difference between a conversation with and one without them. JSON is
    written without spaces. Reading must give back what was stored.
    """
    if stage.kept_bytes is None:
        return
    with_ids, plain = _kept(stage, with_tokens=True)
    without_ids, _ = _kept(stage, with_tokens=False)
    ids = len(json.dumps([_ids(span) for span in plain], separators=(",", ":")))
    calls = len(json.dumps([_readable(span) for span in plain], separators=(",", ":")))
    yield Figure("token_storage_ratio", ids / (with_ids - without_ids), "x")
    yield Figure("token_storage_kb", (with_ids - without_ids) / 1000, "kB")
    yield Figure("call_storage_ratio", calls / with_ids, "x")
    yield Figure("call_storage_kb", with_ids / 1000, "kB")


def _kept(stage: Stage, *, with_tokens: bool) -> tuple[int, Sequence[Span]]:
    """Store a conversation call by call; the bytes of its rows, and its spans."""
    if stage.kept_bytes is None:
        raise AssertionError("asked only where rows can be weighed")
    (key,) = workload.begun(stage.store, 1)
    spans = workload.conversation(key, with_tokens=with_tokens)
    for span in spans:
        stage.store.add_spans([span])
    read = list(stage.store.spans([key.rollout_id]))
    if [span.call for span in read] != [span.call for span in spans]:
        raise AssertionError("the store gives back other calls than it was given")
    return stage.kept_bytes(key.rollout_id), spans


def _ids(span: Span) -> list[list[int]]:
    call = span.call
    if call is None or call.prompt_ids is None:
        raise AssertionError("every span of a conversation is a call with token ids")
    return [list(call.prompt_ids), *(list(choice.response_ids or ()) for choice in call.choices)]


def _readable(span: Span) -> dict[str, object]:
    """A call as JSON has it that knows no packed arrays."""
    call = to_builtins(span.call)
    call["prompt_ids"] = _ids(span)[0]
    if span.call is None:
        raise AssertionError("every span of a conversation is a call")
    for written, choice in zip(call["choices"], span.call.choices, strict=True):
        written["response_ids"] = list(choice.response_ids or ())
        written["logprobs"] = list(choice.logprobs or ())
    return call
