"""Examples from recorded calls: exact where they can be, honest where they cannot."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from agentlightning_sft.config import SFTConfig
from agentlightning_sft.examples import Example, Examples
from agentlightning_sft.recorded import RecordedRun
from agentlightning_sft.tokenising import ChatTokeniser

ASK = {"role": "user", "content": "Any lamps?"}
YES = {"role": "assistant", "content": "Yes, lamps."}
MORE = {"role": "user", "content": "And mugs?"}
NO = {"role": "assistant", "content": "No mugs."}


def said(message: dict[str, Any]) -> dict[str, Any]:
    return {"content": message["content"]}


def examples(recorder: Any, *, agents: list[str] | None = None, **keys: Any) -> Examples:
    config = SFTConfig(source_run=recorder.run_id, **keys)
    tokenise = ChatTokeniser(recorder.tokenizer, assistant_only=config.assistant_only, model="tiny")
    made = RecordedRun(recorder.store, config, recorder.tokenizer, tokenise, agents, "agent")
    return made.examples(recorder.run_id)


def trained(tokenizer: Any, example: Example) -> list[str]:
    pairs = zip(example.ids, example.mask, strict=True)
    stretches = [
        (on, [token for token, _ in group]) for on, group in groupby(pairs, key=lambda pair: pair[1])
    ]
    return [tokenizer.decode(ids) for on, ids in stretches if on]


def test_recorded_ids_are_used_as_sampled(recorder):
    recorder.rollout(([ASK], said(YES)))
    made = examples(recorder)
    (one,) = made.items
    prompt = recorder.prompt_ids([ASK])
    sampled = [*recorder.letters("Yes, lamps."), recorder.tokenizer.eos_token_id]
    assert list(one.ids) == prompt + sampled
    assert one.mask == bytes(len(prompt)) + b"\x01" * len(sampled)
    assert one.exact
    assert recorder.tokenizer(recorder.tokenizer.decode(one.ids))["input_ids"] != list(one.ids)
    assert made.numbers()["data/trained_tokens"] == len(sampled)


def test_calls_that_continue_each_other_are_one_row(recorder, tokenizer, monkeypatch):
    # An engine that keeps the ids it sampled gives prompts that go on exactly.
    first = recorder.prompt_ids([ASK])
    sampled = [*recorder.letters("Yes, lamps."), tokenizer.eos_token_id]
    going_on = [
        *first,
        *sampled,
        *tokenizer("\n<|im_start|>user\nAnd mugs?<|im_end|>\n<|im_start|>assistant\n")["input_ids"],
    ]
    prompts = iter([first, going_on])
    monkeypatch.setattr(recorder, "prompt_ids", lambda *_: next(prompts))
    recorder.rollout(([ASK], said(YES)), ([ASK, YES, MORE], said(NO)))
    (one,) = examples(recorder).items
    assert list(one.ids[: len(going_on)]) == going_on
    assert trained(tokenizer, one) == ["Yes, lamps.<|im_end|>", "No mugs.<|im_end|>"]


def test_ids_of_another_tokenizer_are_not_used(recorder, tokenizer):
    recorder.rollout(([ASK], said(YES)), shift=1)
    made = examples(recorder)
    (one,) = made.items
    assert not one.exact
    assert trained(tokenizer, one) == ["Yes, lamps.<|im_end|>"]
    assert dict(made.retokenised) == {"calls with another model's token ids": 1}


def test_calls_without_ids_become_conversations_with_each_reply_once(recorder, tokenizer):
    recorder.rollout(([ASK], said(YES)), ([ASK, {**YES, "refusal": None}, MORE], said(NO)), ids=False)
    made = examples(recorder)
    (one,) = made.items
    assert trained(tokenizer, one) == ["Yes, lamps.<|im_end|>", "No mugs.<|im_end|>"]
    assert dict(made.retokenised) == {"calls without token ids": 2}


@pytest.mark.parametrize("ids", [True, False])
def test_what_a_prompt_only_claims_was_said_is_not_learned(recorder, tokenizer, ids: bool):
    recorder.rollout(([ASK, YES, MORE], said(NO)), ids=ids)
    (one,) = examples(recorder).items
    assert trained(tokenizer, one) == ["No mugs.<|im_end|>"]


def test_conversations_with_other_tools_or_agents_stay_apart(recorder, tokenizer):
    recorder.rollout(([ASK], said(YES)), ids=False, agent="a")
    recorder.rollout(([MORE], said(NO)), ids=False, agent="b")
    assert len(examples(recorder).items) == 2
    made = examples(recorder, agents=["b"])
    (one,) = made.items
    assert trained(tokenizer, one) == ["No mugs.<|im_end|>"]
    assert dict(made.dropped) == {"calls: its agent is not trained": 1}


def test_tools_are_rendered_as_they_were_offered(recorder, tokenizer):
    tools = [
        {"type": "function", "function": {"name": "order", "parameters": {"properties": {"item": {}}}}}
    ]
    recorder.rollout(([ASK], said(YES)), ids=False, tools=tools)
    (one,) = examples(recorder).items
    assert "order(item)" in tokenizer.decode(one.ids)


def test_a_rollout_without_calls_is_counted(recorder):
    recorder.rollout()
    recorder.rollout(([ASK], said(YES)))
    made = examples(recorder)
    assert len(made) == 1
    assert dict(made.dropped) == {"rollouts without an LLM call": 1}


def test_a_conversation_that_cannot_be_learned_is_counted_and_the_others_kept(recorder):
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    recorder.rollout(([picture], said(YES)), ids=False)
    recorder.rollout(([ASK], said(YES)), ids=False)
    made = examples(recorder)
    assert len(made) == 1
    ((reason, count),) = made.dropped.items()
    assert "expected text only" in reason
    assert count == 1


def test_every_token_is_trained_when_asked_for(recorder):
    recorder.rollout(([ASK], said(YES)))
    (one,) = examples(recorder, assistant_only=False).items
    assert one.exact
    assert set(one.mask) == {1}
