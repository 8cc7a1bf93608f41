"""Datasets of chats: each row becomes an example or is named in the error."""

from __future__ import annotations

from typing import Any

import pytest
from agentlightning.errors import DatasetError
from agentlightning_sft.chats import chat_examples, is_chat
from agentlightning_sft.tokenising import ChatTokeniser
from datasets import Dataset

USER = {"role": "user", "content": "Any lamps?"}
REPLY = {"role": "assistant", "content": "Yes."}


@pytest.fixture
def tokenise(tokenizer: Any) -> ChatTokeniser:
    return ChatTokeniser(tokenizer, assistant_only=True, model="tiny")


def trained_text(tokenizer: Any, example: Any) -> str:
    return tokenizer.decode([token for token, on in zip(example.ids, example.mask, strict=True) if on])


def test_rows_become_examples_in_their_order(tokenise, tokenizer):
    rows = [{"messages": [USER, {**REPLY, "content": text}]} for text in ("Yes.", "No.")]
    made = chat_examples(rows, tokenise, "train_dataset")
    assert [trained_text(tokenizer, one) for one in made.items] == ["Yes.<|im_end|>", "No.<|im_end|>"]
    assert made.numbers()["data/rows_from_template"] == 2


def test_of_a_pair_only_the_completion_is_trained(tokenise, tokenizer):
    shown = [USER, REPLY, {"role": "user", "content": "Any mugs?"}]
    rows = [
        {"prompt": "Any lamps?", "completion": "Yes."},
        {"prompt": shown, "completion": [{"role": "assistant", "content": "No."}]},
    ]
    texts = [
        trained_text(tokenizer, one) for one in chat_examples(rows, tokenise, "train_dataset").items
    ]
    assert texts == ["Yes.<|im_end|>", "No.<|im_end|>"]


def test_a_row_that_was_through_datasets_has_the_same_tokens(tokenise):
    def asks(arguments: dict) -> dict:
        call = {"type": "function", "function": {"name": "order", "arguments": arguments}}
        return {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]}

    rows = [asks({"item": "lamps"}), asks({"quantity": 3})]
    plain = chat_examples(rows, tokenise, "d").items
    stored = chat_examples(list(Dataset.from_list(rows)), tokenise, "d").items
    assert [list(one.ids) for one in plain] == [list(one.ids) for one in stored]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("text", "got a str"),
        ({"text": "hi", "label": 3}, "has the keys text, label"),
        ({"messages": []}, "at least one message"),
        ({"messages": [USER]}, "nothing to learn"),
        ({"messages": [USER, {"role": "assistant", "content": 3}]}, r"messages\[1\]: content of type"),
        ({"messages": [USER, REPLY], "tools": "{"}, "tools"),
        ({"prompt": "hi", "completion": 3}, "got a int"),
    ],
)
def test_a_row_that_cannot_be_learned_is_named(tokenise, row, what: str):
    rows = [{"messages": [USER, REPLY]}, row]
    with pytest.raises(DatasetError, match=f"train_dataset row 1: .*{what}"):
        chat_examples(rows, tokenise, "train_dataset")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": [USER, REPLY]}, True),
        ({"prompt": "a", "completion": "b"}, True),
        ({"messages": [USER]}, False),
        ({"question": "a", "answer": "b"}, False),
        ({"prompt": "a"}, False),
        ("a task", False),
    ],
)
def test_chats_and_tasks_are_told_apart(row, expected: bool):
    assert is_chat(row) is expected
