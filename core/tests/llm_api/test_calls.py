import json

import pytest
from agentlightning import semconv
from agentlightning.llm_api import (
    CallHeaders,
    api_of_path,
    base_of_url,
    conversation,
    llm_span,
    read_call,
    read_call_headers,
    url_for,
    within,
    write_call_headers,
)
from agentlightning.records import AttemptKey, LLMCall, from_json, to_json

MESSAGES = [{"role": "user", "content": "hi"}]


def call(response, api="chat", request=None, **options):
    request = {"model": "m", "messages": MESSAGES} if request is None else request
    return read_call(
        seq=1,
        api=api,
        agent=None,
        base_url="http://x/v1",
        request=request,
        response=response,
        **options,
    )


def chat(**fields):
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "a"},
        "finish_reason": "stop",
        **fields,
    }
    return {"id": "c1", "choices": [choice]}


def test_ids_and_logprobs_are_packed_and_leave_the_response():
    reply = {
        **chat(token_ids=[3, 4], logprobs={"content": [{"logprob": -0.5}, {"logprob": -1}]}),
        "prompt_token_ids": [1, 2],
    }
    before = json.dumps(reply)
    record = call(reply)
    assert record.prompt_ids == [1, 2]
    assert record.choices[0].response_ids == [3, 4]
    assert list(record.choices[0].logprobs) == [-0.5, -1.0]
    assert record.response["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    ]
    assert "prompt_token_ids" not in record.response
    assert json.dumps(reply) == before
    assert from_json(to_json(record), LLMCall) == record


def test_several_choices_are_kept_apart():
    reply = {
        "choices": [
            {"index": 1, "message": {"content": "b"}, "token_ids": [2]},
            {"index": 0, "message": {"content": "a"}, "token_ids": [1]},
        ]
    }
    record = call(reply)
    assert [(choice.index, list(choice.response_ids)) for choice in record.choices] == [
        (1, [2]),
        (0, [1]),
    ]


def test_a_completions_reply_has_its_ids_in_the_choice():
    reply = {
        "choices": [
            {
                "text": "a",
                "token_ids": [3],
                "prompt_token_ids": [1],
                "logprobs": {"token_logprobs": [-0.5]},
            }
        ]
    }
    record = call(reply, "completions", {"model": "m", "prompt": "p"})
    assert record.prompt_ids == [1]
    assert record.choices[0].response_ids == [3]
    assert list(record.choices[0].logprobs) == [-0.5]
    assert conversation(record) == [
        {"role": "user", "content": "p"},
        {"role": "assistant", "content": "a"},
    ]


@pytest.mark.parametrize(
    "reply",
    [
        None,
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None, 3]},
        {"choices": [{"message": None}]},
        {"error": {"message": "no"}},
        {"error": "no", "choices": []},
        chat(token_ids=["a"]),
        chat(token_ids=[-1]),
        chat(token_ids=3),
        chat(logprobs={"content": [{"logprob": float("-inf")}]}),
        chat(logprobs={"content": [{"logprob": None}]}),
        {**chat(), "prompt_token_ids": [2**40]},
    ],
)
def test_an_unusable_reply_gives_an_incomplete_record_and_says_why(reply):
    record = call(reply, error=None if reply is not None else "no reply")
    assert not record.complete
    assert record.error
    to_json(record)


@pytest.mark.parametrize("api", ["completions", "responses", "messages"])
@pytest.mark.parametrize(
    "reply", [{}, {"choices": [None]}, {"output": None}, {"content": None}, {"output": "x"}]
)
def test_other_protocols_take_bad_replies_too(api, reply):
    assert not call(reply, api, {}).complete


def test_missing_and_null_parts_are_left_out():
    record = call(
        {**chat(logprobs=None), "usage": None, "model": None},
        request={"messages": MESSAGES, "tools": None, "temperature": None},
    )
    assert record.complete
    assert record.usage is None
    assert record.temperature is None
    assert record.model == ""


def test_a_span_has_opentelemetrys_names():
    record = call(
        {
            **chat(),
            "model": "m-2026",
            "usage": {"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": None},
        }
    )
    span = llm_span(
        record,
        key=AttemptKey("r", 1),
        trace_id="t",
        span_id="s",
        parent_id="p",
        start_ns=1,
        end_ns=2,
        attributes={semconv.ROUTE: "routed"},
    )
    assert span.name == "chat m"
    assert (span.kind, span.status, span.parent_id) == ("llm", "ok", "p")
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.id": "c1",
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 1,
        "agentlightning.route": "routed",
    }


# --- conversations ----------------------------------------------------------------------------


def test_a_chat_with_tools_is_a_conversation():
    calls = [{"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "0"},
    ]
    assert conversation(call(chat(), request={"messages": messages})) == [
        *messages,
        {"role": "assistant", "content": "a"},
    ]


def test_a_responses_call_is_a_conversation():
    request = {
        "instructions": "be kind",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
            {"type": "reasoning", "summary": []},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "let me see"}],
            },
            {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": []},
            {"type": "brand_new", "x": 1},
        ],
    }
    reply = {
        "id": "r",
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}
        ],
    }
    record = call(reply, "responses", request)
    assert record.complete
    assert record.choices[0].finish_reason == "completed"
    messages = conversation(record)
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
        "assistant",
    ]
    assert messages[1]["content"] == "2+2?"
    assert messages[3]["content"] == "let me see"
    assert messages[3]["tool_calls"][0]["function"]["name"] == "add"
    assert messages[4]["content"] == []
    assert messages[5]["item"] == {"type": "brand_new", "x": 1}
    assert messages[6]["content"] == "4"


def test_an_anthropic_call_is_a_conversation():
    request = {
        "system": [{"type": "text", "text": "be kind"}],
        "messages": [
            {"role": "user", "content": "2+2?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "hm"},
                    {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 2}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "4"},
                    {"type": "text", "text": "so?"},
                ],
            },
        ],
    }
    record = call(
        {
            "id": "m",
            "role": "assistant",
            "content": [{"type": "text", "text": "four"}],
            "stop_reason": "end_turn",
        },
        "messages",
        request,
    )
    messages = conversation(record)
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2}'}
    assert messages[5]["content"] == "four"


# --- paths and headers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/chat/completions", "chat"),
        ("https://x/openai/deployments/d/chat/completions?api-version=1", "chat"),
        ("/completions", "completions"),
        ("completions", "completions"),
        ("/rollout/r/attempt/1/v1/responses/", "responses"),
        ("/v1/messages", "messages"),
        ("/responses/input_tokens", None),
        ("/embeddings", None),
        ("/my_completions", None),
    ],
)
def test_a_path_tells_its_protocol(path, api):
    assert api_of_path(path) == api


def test_urls_come_apart_and_together():
    assert url_for("http://x/v1/", "chat") == "http://x/v1/chat/completions"
    assert base_of_url("https://user:pw@x:1/v1/chat/completions?key=secret") == "https://x:1/v1"
    assert base_of_url(url_for("https://x/v1", "messages")) == "https://x/v1"
    assert within("http://127.0.0.1:80/v1", "http://127.0.0.1:80")
    assert not within("http://127.0.0.1:8000/v1", "http://127.0.0.1:80")
    assert not within("http://127.0.0.1:80/v1", None)


@pytest.mark.parametrize("name", ["writer", "schön & gut 100%", "名前", "a/b\nc"])
def test_headers_carry_any_agents_name(name):
    told = CallHeaders("s" * 16, None, name, 7)
    written = write_call_headers(told)
    assert all(value.isascii() and "\n" not in value for value in written.values())
    assert read_call_headers(written) == told
    assert read_call_headers({}) == CallHeaders()
