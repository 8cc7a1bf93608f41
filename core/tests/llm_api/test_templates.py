"""Messages and tools of every origin become what chat templates expect, for learning and serving alike."""

import pytest
from agentlightning.llm_api import BadConversation, template_messages, template_tools


def call(name, arguments):
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(arguments):
    (message,) = template_messages(
        [{"role": "assistant", "content": None, "tool_calls": [call("order", arguments)]}]
    )
    return message["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"item": "x", "note": null}', {"item": "x", "note": None}),
        ({"item": "x", "note": None}, {"item": "x"}),
        ("", {}),
        (None, {}),
    ],
)
def test_arguments_become_objects_and_only_a_null_in_json_text_is_meant(given, expected):
    assert asks(given) == expected


def test_what_is_absent_is_not_null():
    absent = {"name": None, "refusal": None, "tool_calls": None, "audio": None}
    assert template_messages([{"role": "user", "content": "hi", **absent}]) == [
        {"role": "user", "content": "hi"}
    ]
    sent = {**call("order", "{}"), "index": None}
    (message,) = template_messages([{"role": "assistant", "tool_calls": [sent]}])
    assert message == {"role": "assistant", "content": "", "tool_calls": [call("order", {})]}


def test_developer_is_system_and_parts_are_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template_messages(
        [{"role": "developer", "content": "be kind"}, {"role": "user", "content": parts}]
    ) == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "a\nb"}]


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        (None, "messages: expected a list with at least one message, got None"),
        ([], "at least one message"),
        ("hello", "at least one message"),
        (["hello"], r"messages\[0\]: expected an object with a role"),
        ([{"role": "user"}, {"content": "x"}], r"messages\[1\]: expected an object with a role"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            r"messages\[0\]: content of type 'image_url'; expected text only",
        ),
        ([{"role": "user", "content": 3}], "content of type 'int'"),
        ([{"role": "assistant", "tool_calls": [call("order", "{broken")]}], "'order' are not JSON"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "a function and its name"),
        ([{"role": "assistant", "tool_calls": ["order"]}], "a function and its name"),
    ],
)
def test_a_bad_conversation_says_what_and_where(messages, what):
    with pytest.raises(BadConversation, match=what):
        template_messages(messages)


def test_nothing_given_is_changed():
    given = [{"role": "assistant", "content": None, "tool_calls": [call("order", "{}")]}]
    template_messages(given)
    assert given == [{"role": "assistant", "content": None, "tool_calls": [call("order", "{}")]}]


PARAMETERS = {"type": "object", "properties": {}}
TOOL = {"type": "function", "function": {"name": "order", "parameters": PARAMETERS}}


@pytest.mark.parametrize(
    "tool",
    [
        TOOL,
        {"type": "function", "name": "order", "parameters": PARAMETERS},
        {"name": "order", "input_schema": PARAMETERS},
        {
            "type": "function",
            "function": {
                "name": "order",
                "description": None,
                "parameters": {"type": "object", "properties": {"of_another_row": None}},
            },
        },
    ],
)
def test_tools_of_every_protocol_become_those_of_chat_completions(tool):
    assert template_tools([tool]) == [TOOL]


def test_tools_may_be_json_text_or_missing():
    assert template_tools(
        '[{"name": "order", "input_schema": {"type": "object", "properties": {}}}]'
    ) == [TOOL]
    assert template_tools(None) == template_tools([]) == []


@pytest.mark.parametrize("tools", ["{", 3, ["order"]])
def test_bad_tools_are_named(tools):
    with pytest.raises(BadConversation, match="tools"):
        template_tools(tools)
