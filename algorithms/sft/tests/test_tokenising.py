"""What is trained of a conversation, token by token."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from agentlightning.errors import ConfigError
from agentlightning_sft.examples import Example
from agentlightning_sft.messages import BadChat, for_template
from agentlightning_sft.tokenising import ChatTokeniser
from agentlightning_transformers.tiny import CHAT_TEMPLATE
from trl.chat_template_utils import qwen3_chat_template

MESSAGES = for_template(
    [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Please order lamps."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "order", "arguments": '{"item": "lamps"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "assistant", "content": "Ordered lamps."},
    ]
)
FIRST = '<tool_call>{"name": "order", "arguments": {"item": "lamps"}}</tool_call><|im_end|>'
SECOND = "Ordered lamps.<|im_end|>"


def tokeniser(tokenizer: Any, **keys: Any) -> ChatTokeniser:
    return ChatTokeniser(tokenizer, **{"assistant_only": True, "model": "tiny", **keys})


def trained(tokenizer: Any, example: Example) -> list[str]:
    """The text of each unbroken stretch of trained tokens."""
    assert len(example.ids) == len(example.mask)
    pairs = zip(example.ids, example.mask, strict=True)
    stretches = [
        (on, [token for token, _ in group]) for on, group in groupby(pairs, key=lambda pair: pair[1])
    ]
    return [tokenizer.decode(ids) for on, ids in stretches if on]


def test_exactly_what_the_assistant_says_is_trained_with_the_end_of_its_turn(tokenizer):
    example = tokeniser(tokenizer).example(MESSAGES, None)
    assert trained(tokenizer, example) == [FIRST, SECOND]
    assert tokenizer.decode(example.ids) == tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    assert not example.exact


def test_a_whole_conversation_has_the_tokens_of_the_prompts_an_engine_makes(tokenizer):
    tools = [
        {"type": "function", "function": {"name": "order", "parameters": {"properties": {"item": {}}}}}
    ]
    example = tokeniser(tokenizer).example(MESSAGES, tools)
    for turns in (2, 4):
        text = tokenizer.apply_chat_template(
            MESSAGES[:turns], tools=tools, tokenize=False, add_generation_prompt=True
        )
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert list(example.ids[: len(prompt)]) == prompt
        assert not example.mask[len(prompt) - 1]
        assert example.mask[len(prompt)]


def test_only_the_named_replies_are_trained(tokenizer):
    make = tokeniser(tokenizer)
    assert trained(tokenizer, make.example(MESSAGES, None, replies={4})) == [SECOND]
    assert trained(tokenizer, make.example(MESSAGES, None, replies={2})) == [FIRST]
    assert trained(tokenizer, make.example(MESSAGES, None, replies={2, 4})) == [FIRST, SECOND]


def test_every_token_is_trained_when_asked_for(tokenizer):
    example = tokeniser(tokenizer, assistant_only=False).example(MESSAGES, None)
    assert set(example.mask) == {1}
    assert example.trained_tokens == len(example.ids) - 1


def test_a_conversation_without_a_reply_has_nothing_to_learn(tokenizer):
    with pytest.raises(BadChat, match="nothing to learn"):
        tokeniser(tokenizer).example(MESSAGES[:2], None)


def test_a_template_without_marks_is_refused_by_name(tokenizer):
    tokenizer.chat_template = CHAT_TEMPLATE.replace("{%- generation -%}", "").replace(
        "{%- endgeneration -%}", ""
    )
    with pytest.raises(
        ConfigError, match=r"'tiny' has no \{% generation %\} marks.*assistant_only: false"
    ):
        tokeniser(tokenizer)
    example = tokeniser(tokenizer, assistant_only=False).example(MESSAGES, None)
    assert set(example.mask) == {1}


def test_a_model_without_a_template_is_refused_by_name(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="'tiny' has no chat template"):
        tokeniser(tokenizer)


def test_a_well_known_template_without_marks_is_replaced_by_its_marked_twin(tokenizer):
    tokenizer.chat_template = qwen3_chat_template
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    example = tokeniser(tokenizer).example(for_template(said), None)
    assert trained(tokenizer, example) == ["<think>\n\n</think>\n\nHello<|im_end|>\n"]
    assert tokenizer.chat_template == qwen3_chat_template


def test_a_template_that_refuses_the_messages_is_quoted(tokenizer):
    tokenizer.chat_template = (
        "{{ raise_exception('roles must alternate') }}{% generation %}{% endgeneration %}"
    )
    with pytest.raises(BadChat, match="roles must alternate"):
        tokeniser(tokenizer).example(MESSAGES, None)
