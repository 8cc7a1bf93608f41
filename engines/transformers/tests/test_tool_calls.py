import json

import pytest
from agentlightning_transformers.tool_calls import parse_message
from transformers import AutoTokenizer

CALL = '<tool_call>{"name": "stock", "arguments": {"item": "lamps", "quantity": 3}}</tool_call>'


@pytest.fixture(scope="module")
def tokenizer(untrained):
    return AutoTokenizer.from_pretrained(untrained)


def parsed(tokenizer, text):
    return parse_message(tokenizer, text, plain=text, prompt="", tools=[{"type": "function"}])


def test_a_call_comes_back_and_its_conversation_continues_token_for_token(kit, trained):
    first = {**kit.ask(temperature=0, tools=kit.TOOLS), "messages": kit.CHAT[:1], "max_tokens": 40}
    with kit.serving(trained) as (_, info):
        (reply,) = kit.answer(info, first)
        choice = reply["choices"][0]
        message = choice["message"]
        # What LangChain sends next: null beside the call, the arguments as they came.
        history = [
            kit.CHAT[0],
            {**message, "content": None},
            {**kit.CHAT[2], "tool_call_id": message["tool_calls"][0]["id"]},
        ]
        (second,) = kit.answer(info, {**first, "messages": history})
    assert choice["finish_reason"] == "tool_calls"
    assert message["content"] is None
    (call,) = message["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "stock"
    assert json.loads(call["function"]["arguments"]) == {"item": "lamps", "quantity": 3}
    so_far = reply["prompt_token_ids"] + choice["token_ids"]
    assert second["prompt_token_ids"][: len(so_far)] == so_far
    assert second["choices"][0]["message"]["content"] == "I ordered 3 lamps."


def test_a_call_cut_off_by_the_limit_says_length(kit, trained):
    with kit.serving(trained) as (_, info):
        (reply,) = kit.answer(
            info, {**kit.ask(temperature=0, tools=kit.TOOLS), "messages": kit.CHAT[:1], "max_tokens": 5}
        )
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"].startswith("<tool_call>")


def test_a_call_that_no_tool_allows_stays_text(kit, trained):
    tokenizer = AutoTokenizer.from_pretrained(trained)
    message = parse_message(tokenizer, CALL, plain=CALL, prompt="", tools=[])
    assert message == {"role": "assistant", "content": CALL}


def test_with_tool_choice_none_the_model_is_shown_no_tools(kit, trained):
    with kit.serving(trained) as (_, info):
        without, forbidden = kit.answer(info, kit.ask(), kit.ask(tools=kit.TOOLS, tool_choice="none"))
    assert without["prompt_token_ids"] == forbidden["prompt_token_ids"]


def test_text_around_several_calls_is_kept(tokenizer):
    message = parsed(tokenizer, f"Let me look.\n{CALL}\n{CALL}")
    assert message["content"] == "Let me look."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["stock", "stock"]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{broken}</tool_call>",
        '<tool_call>{"name": "stock", "arguments": {}',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "stock", "arguments": "lamps"}</tool_call>',
        "<tool_call>[1]</tool_call>",
        f"{CALL}<tool_call>oops</tool_call>",
    ],
)
def test_a_malformed_call_stays_plain_text(tokenizer, text):
    assert parsed(tokenizer, text) == {"role": "assistant", "content": text}


def test_only_one_call_is_kept_if_parallel_calls_are_off(kit, trained):
    from agentlightning_transformers.replies import ReplyWriter
    from agentlightning_transformers.requests import RequestReader
    from agentlightning_transformers.sampling import Sampled

    tokenizer = AutoTokenizer.from_pretrained(trained)
    reader = RequestReader(tokenizer, max_model_len=500, max_new_tokens=None)
    writer = ReplyWriter(tokenizer, model="m", stop_ids=frozenset([tokenizer.eos_token_id]))
    ids = tokenizer(CALL + CALL)["input_ids"]
    sampled = Sampled(ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop")
    for parallel, count in ((None, 2), (True, 2), (False, 1)):
        request = reader.read(kit.ask(tools=kit.TOOLS, parallel_tool_calls=parallel))
        reply = writer.write(request, [sampled])
        assert len(reply["choices"][0]["message"]["tool_calls"]) == count


def test_a_tokenizer_with_a_response_template_is_read_its_own_way(untrained):
    tokenizer = AutoTokenizer.from_pretrained(untrained)
    tokenizer.response_template = {
        "start_anchor": "<|im_start|>assistant\n",
        "defaults": {"role": "assistant"},
        "fields": {
            "thinking": {"open": "<think>", "close": "</think>", "content": "text"},
            "tool_calls": {
                "open": "[call]",
                "close": "[/call]",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close": "<|im_end|>", "content": "text"},
        },
    }
    message = parsed(
        tokenizer,
        '<think>hm</think>Looking.[call]{"name": "stock", "arguments": {"item": "lamps"}}[/call]',
    )
    assert message["content"] == "Looking."
    assert message["reasoning_content"] == "hm"
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "stock", "arguments": '{"item": "lamps"}'}
    broken = "[call]{broken[/call]"
    assert parsed(tokenizer, broken) == {"role": "assistant", "content": broken}
