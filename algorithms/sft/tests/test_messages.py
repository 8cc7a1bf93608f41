"""Conversations to be trained on, in the very shape the engine renders."""

from __future__ import annotations

import pytest
from agentlightning_sft.messages import BadChat, for_template, for_template_tools, same_turn
from datasets import Dataset


def call(name: str, arguments: object) -> dict:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_what_datasets_filled_with_null_is_absent_again():
    rows = [
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [call("a", {"item": "x"})]}]},
        {
            "messages": [
                {"role": "assistant", "content": "hi"},
                {"role": "tool", "content": "", "tool_calls": [call("b", {"quantity": 1})]},
            ]
        },
    ]
    filled = Dataset.from_list(rows)[0]["messages"]
    assert filled[0]["tool_calls"][0]["function"]["arguments"] == {"item": "x", "quantity": None}
    assert for_template(filled) == for_template(rows[0]["messages"])
    assert "tool_calls" not in for_template(Dataset.from_list(rows)[1]["messages"])[0]


def test_a_turn_is_the_same_whatever_frameworks_note_on_it():
    plain = [{"role": "assistant", "content": None, "tool_calls": [call("order", '{"item": "x"}')]}]
    noted = [{**plain[0], "content": "", "name": "desk", "refusal": None}]
    other = [{**plain[0], "tool_calls": [call("order", '{"item": "y"}')]}]
    assert same_turn(*for_template(plain), *for_template(noted))
    assert not same_turn(*for_template(plain), *for_template(other))


def test_what_no_template_can_render_is_a_bad_chat():
    with pytest.raises(BadChat, match=r"messages\[0\]: content of type 'image_url'"):
        for_template([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])
    with pytest.raises(BadChat, match="tools"):
        for_template_tools("{")


def test_no_tools_are_none():
    assert for_template_tools([]) is for_template_tools(None) is None
