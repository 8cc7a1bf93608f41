"""Chat messages of every origin become what templates expect."""

from __future__ import annotations

import pytest
from agentlightning_sft.messages import BadChat, for_template, for_template_tools
from datasets import Dataset


def call(name: str, arguments: object) -> dict:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def arguments_of(message: dict) -> object:
    return message["tool_calls"][0]["function"]["arguments"]


def test_arguments_in_json_text_become_objects_and_keep_their_nulls():
    (message,) = for_template(
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call("order", '{"item": "x", "note": null}')],
            }
        ]
    )
    assert message["content"] == ""
    assert arguments_of(message) == {"item": "x", "note": None}


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
    assert arguments_of(for_template(filled)[0]) == {"item": "x"}
    assert "tool_calls" not in for_template(Dataset.from_list(rows)[1]["messages"])[0]


def test_developer_is_system_and_parts_are_text():
    made = for_template(
        [
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ]
    )
    assert [(message["role"], message["content"]) for message in made] == [
        ("system", "be kind"),
        ("user", "a\nb"),
    ]


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        (None, "at least one message"),
        ([], "at least one message"),
        ("hello", "at least one message"),
        (["hello"], "message 0: expected an object with a role"),
        ([{"content": "x"}], "message 0: expected an object with a role"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            "message 0: only text",
        ),
        ([{"role": "user", "content": 3}], "message 0: only text"),
        ([{"role": "assistant", "tool_calls": [call("order", "{broken")]}], "'order' are not JSON"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "a function and its name"),
    ],
)
def test_a_bad_conversation_says_what_and_where(messages, what: str):
    with pytest.raises(BadChat, match=what):
        for_template(messages)


def test_tools_of_every_protocol_become_those_of_chat_completions():
    parameters = {"type": "object", "properties": {}}
    chat = {"type": "function", "function": {"name": "order", "parameters": parameters}}
    responses = {"type": "function", "name": "order", "parameters": parameters}
    anthropic = {"name": "order", "input_schema": parameters}
    assert (
        for_template_tools([chat]) == for_template_tools([responses]) == for_template_tools([anthropic])
    )
    assert for_template_tools(
        '[{"name": "order", "input_schema": {"type": "object", "properties": {}}}]'
    ) == [chat]
    assert for_template_tools(None) is None
    assert for_template_tools([]) is None


@pytest.mark.parametrize("tools", ["{", 3, ["order"]])
def test_bad_tools_are_named(tools):
    with pytest.raises(BadChat, match="tools"):
        for_template_tools(tools)
