"""LLM calls: a backend that keeps them as differences still gives back what it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from msgspec.structs import replace

from agentlightning.records import AttemptKey, Choice, Floats, LLMCall, Span, Tokens
from agentlightning.store import Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import claimed, ended, request, result, span

TURNS = 12


class CallTests(StoreTests):
    """The calls of conversations, whose prompts repeat each other."""

    def test_the_calls_of_a_conversation_come_back(self, store: Store, run_id: str) -> None:
        """One by one, in bulk and with the result: every call as it was, in order of arrival."""
        claim = claimed(store, run_id)
        spans = conversation(claim.key)
        store.add_spans(spans[:1])
        store.add_spans(spans[1:2])
        store.add_spans(spans[2:8])
        store.finish([result(claim, spans=spans[8:])])
        assert _found(store, claim.key) == spans

    def test_conversations_do_not_mix(self, store: Store, run_id: str) -> None:
        """The same span ids in other attempts and rollouts are other calls, written in turns or not."""
        first = claimed(store, run_id, request(max_attempts=2))
        store.finish([ended(first, "failed")])
        (second,) = store.claim(run_id, "worker")
        keys = [first.key, second.key, claimed(store, run_id).key]
        told = [conversation(key, seed) for seed, key in enumerate(keys)]
        for turn in zip(*told, strict=True):
            store.add_spans(turn)
        found = list(store.spans([first.key.rollout_id, keys[2].rollout_id], attempt="all"))
        for key, expected in zip(keys, told, strict=True):
            mine = [replace(item, index=0) for item in found if _key(item) == key]
            assert mine == expected

    def test_calls_are_read_whole_when_few_are_asked_for(self, store: Store, run_id: str) -> None:
        """A span that is asked for by kind may be stored as a difference to one that is not."""
        key = claimed(store, run_id).key
        spans = [
            replace(item, kind="llm" if turn % 3 == 0 else "tool")
            for turn, item in enumerate(conversation(key))
        ]
        store.add_spans([*spans, span(key, 100, kind="reward")])
        for kind in ("llm", "tool"):
            expected = [item for item in spans if item.kind == kind]
            assert _found(store, key, kind) == expected
        (reward,) = store.spans([key.rollout_id], kinds=["reward"])
        assert reward.call is None

    def test_a_span_that_was_there_before_stays_and_is_no_base(self, store: Store, run_id: str) -> None:
        """Of two spans of one id the first is kept: what comes after must not build on the second."""
        key = claimed(store, run_id).key
        first, other = conversation(key, seed=1), conversation(key, seed=2)
        without_call = replace(first[5], call=None)
        store.add_spans([first[0], without_call])
        store.add_spans([other[0], other[5], other[1], other[6], other[5], other[2]])
        store.add_spans([other[1], other[3]])
        expected = [first[0], without_call, other[1], other[6], other[2], other[3]]
        assert _found(store, key) == expected

    def test_of_one_id_given_twice_the_first_is_kept(self, store: Store, run_id: str) -> None:
        """Also within one call, and whether it is the first or the second that has a call."""
        key = claimed(store, run_id).key
        first, other = conversation(key, seed=1), conversation(key, seed=2)
        without_call = replace(other[3], call=None)
        store.add_spans([first[0], other[0], other[1], without_call, other[3], other[4]])
        assert _found(store, key) == [first[0], other[1], without_call, other[4]]

    def test_openings_that_take_turns_agree(
        self, store: Store, run_id: str, reopen: Callable[[], Store] | None
    ) -> None:
        """Two processes write to one attempt, and a third reads: each builds on what is stored."""
        key = claimed(store, run_id).key
        spans = conversation(key)
        with nullcontext(store) if reopen is None else reopen() as other:
            for turn, item in enumerate(spans):
                (store if turn % 2 else other).add_spans([item])
            assert _found(store, key) == _found(other, key) == spans

    def test_each_reply_of_several_can_be_gone_on_with(self, store: Store, run_id: str) -> None:
        """With ``n`` replies the next prompt may repeat any of them, and each is kept."""
        key = claimed(store, run_id).key
        base = conversation(key)[0]
        assert base.call is not None
        replies = tuple(
            Choice(index=number, response_ids=Tokens(range(100 * number, 100 * number + 30)))
            for number in range(3)
        )
        spans = [replace(base, call=replace(base.call, choices=replies))]
        for number, reply in enumerate(replies):
            ids = Tokens([*(base.call.prompt_ids or ()), *(reply.response_ids or ()), number])
            call = replace(base.call, seq=number + 1, prompt_ids=ids)
            spans.append(replace(base, span_id=f"{number + 50:016x}", call=call))
        store.add_spans(spans[:1])
        store.add_spans(spans[1:])
        assert _found(store, key) == spans


def conversation(key: AttemptKey, seed: int = 0) -> list[Span]:
    """The calls of an attempt, each prompt going on after the one before, one of them edited."""
    context = [seed, *range(1000, 1200)]
    messages = [{"role": "system", "content": f"You are agent {seed}, helpful and brief."}]
    spans = []
    for turn in range(TURNS):
        if turn == TURNS // 2:  # the agent shortens its history
            context, messages = context[:150], messages[:2]
        context += [seed, turn, *range(turn, turn + 20)]
        messages.append({"role": "user", "content": f"Question {turn} of conversation {seed}?"})
        said = [150_000 + turn, *range(10)]
        reply = {"role": "assistant", "content": f"That is a long and good question, number {turn}."}
        call = LLMCall(
            seq=turn,
            api="chat",
            model="small",
            base_url="http://127.0.0.1:1/v1",
            request={"model": "small", "messages": list(messages)},
            response={"id": f"r{turn}", "choices": [{"index": 0, "message": reply}]},
            prompt_ids=Tokens(context),
            choices=(
                Choice(message=reply, response_ids=Tokens(said), logprobs=Floats([-0.5] * len(said))),
            ),
        )
        spans.append(span(key, turn + 1, kind="llm", call=call))
        context = [*context, *said]
        messages.append(reply)
    return spans


def _found(store: Store, key: AttemptKey, *kinds: str) -> list[Span]:
    wanted: Sequence[str] | None = kinds or None
    found = store.spans([key.rollout_id], attempt=key.number, kinds=wanted)  # type: ignore[arg-type]
    return [replace(item, index=0) for item in found]


def _key(item: Span) -> AttemptKey:
    return AttemptKey(item.rollout_id, item.attempt)
