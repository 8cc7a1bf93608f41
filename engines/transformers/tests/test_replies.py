import pytest
from agentlightning.errors import EngineError
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="module")
def served(kit, untrained):
    with kit.serving(untrained) as (_, info):
        yield info


@pytest.fixture(scope="module")
def tokenizer(untrained):
    return AutoTokenizer.from_pretrained(untrained)


@pytest.mark.parametrize(("asked", "meant"), [(1.0, 1.0), (0.7, 0.7), (0, 1.0)])
def test_logprobs_are_those_of_a_plain_forward_at_the_sampling_temperature(
    kit, served, untrained, asked, meant
):
    (reply,) = kit.answer(served, kit.ask(temperature=asked))
    expected = kit.plain_logprobs(AutoModelForCausalLM.from_pretrained(untrained), reply, meant)
    assert kit.told_logprobs(reply) == pytest.approx(expected, abs=1e-4)
    assert len(expected) == reply["usage"]["completion_tokens"] > 0


def test_ids_are_the_templated_prompt_and_all_that_was_sampled(kit, served, tokenizer):
    (reply,) = kit.answer(served, kit.ask(tools=kit.TOOLS))
    prompt = tokenizer.apply_chat_template(
        kit.ask()["messages"], tools=kit.TOOLS, add_generation_prompt=True, return_dict=False
    )
    choice = reply["choices"][0]
    assert reply["prompt_token_ids"] == prompt
    assert (
        tokenizer.decode(choice["token_ids"], skip_special_tokens=True) == choice["message"]["content"]
    )
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]).strip()
    sampled = len(choice["token_ids"])
    assert reply["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": sampled,
        "total_tokens": len(prompt) + sampled,
    }


def test_ids_and_logprobs_stay_away_unless_asked_for(kit, served):
    (reply,) = kit.answer(served, kit.ask(logprobs=None, return_token_ids=False))
    assert "prompt_token_ids" not in reply
    assert "token_ids" not in reply["choices"][0]
    assert reply["choices"][0]["logprobs"] is None


def test_a_batch_of_mixed_lengths_and_samplings_answers_like_single_requests(kit, served):
    bodies = [
        kit.ask("Hi", temperature=0, max_tokens=3),
        kit.ask("Please order 3 lamps. " * 9, temperature=0, max_tokens=20),
        kit.ask("How many chairs are there?", temperature=1.0, seed=7),
        kit.ask("12 + 34", temperature=0.8, seed=8, top_p=0.9, top_k=20),
    ]
    together = kit.answer(served, *bodies)
    for body, reply in zip(bodies, together, strict=True):
        (alone,) = kit.answer(served, body)
        assert alone["choices"][0]["token_ids"] == reply["choices"][0]["token_ids"]
        assert kit.told_logprobs(alone) == pytest.approx(kit.told_logprobs(reply), abs=1e-4)
    assert [len(reply["choices"][0]["token_ids"]) for reply in together] == [3, 20, 12, 12]


def test_greedy_is_the_likeliest_token_each_time(kit, served, untrained):
    (reply,) = kit.answer(served, kit.ask(temperature=0))
    module = AutoModelForCausalLM.from_pretrained(untrained)
    whole = reply["prompt_token_ids"] + reply["choices"][0]["token_ids"]
    import torch

    best = module(input_ids=torch.tensor([whole])).logits[0].argmax(-1).tolist()
    start = len(reply["prompt_token_ids"])
    assert best[start - 1 : -1] == whole[start:]


def test_top_k_and_top_p_keep_only_the_likeliest(kit, served):
    greedy, by_k, by_p = kit.answer(
        served,
        kit.ask(temperature=0),
        kit.ask(temperature=2.0, top_k=1),
        kit.ask(temperature=2.0, top_p=1e-6),
    )
    ids = greedy["choices"][0]["token_ids"]
    assert by_k["choices"][0]["token_ids"] == ids
    assert by_p["choices"][0]["token_ids"] == ids


def test_n_gives_as_many_different_replies_each_with_its_numbers(kit, served, untrained):
    (reply,) = kit.answer(served, kit.ask(n=3, temperature=1.0, seed=5))
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len({tuple(choice["token_ids"]) for choice in reply["choices"]}) == 3
    module = AutoModelForCausalLM.from_pretrained(untrained)
    for number in range(3):
        assert kit.told_logprobs(reply, number) == pytest.approx(
            kit.plain_logprobs(module, reply, 1.0, number), abs=1e-4
        )
    assert reply["usage"]["completion_tokens"] == 36


def test_a_reply_ends_at_the_end_token_which_is_in_the_ids_and_not_in_the_text(kit, trained):
    with kit.serving(trained) as (_, info):
        (reply,) = kit.answer(
            info,
            {**kit.ask(temperature=0), "messages": kit.CHAT[:3], "tools": kit.TOOLS, "max_tokens": 40},
        )
    choice = reply["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "I ordered 3 lamps."}
    assert choice["finish_reason"] == "stop"
    assert (
        AutoTokenizer.from_pretrained(trained).decode(choice["token_ids"])
        == "I ordered 3 lamps.<|im_end|>"
    )


def test_a_stop_text_ends_the_reply_and_is_cut_off(kit, trained):
    with kit.serving(trained) as (_, info):
        body = {
            **kit.ask(temperature=0),
            "messages": kit.CHAT[:3],
            "tools": kit.TOOLS,
            "stop": ["rdered 3"],
        }
        (reply,) = kit.answer(info, body)
    choice = reply["choices"][0]
    assert choice["message"]["content"] == "I o"
    assert choice["finish_reason"] == "stop"
    assert len(choice["token_ids"]) < 12


def test_the_limit_of_tokens_is_told_by_the_finish_reason(kit, served):
    (reply,) = kit.answer(served, kit.ask(max_tokens=None, max_completion_tokens=2, temperature=0))
    assert len(reply["choices"][0]["token_ids"]) == 2
    assert reply["choices"][0]["finish_reason"] == "length"


def test_a_reply_never_grows_beyond_the_model(kit, untrained):
    with kit.serving(untrained, max_model_len=40) as (_, info):
        (reply,) = kit.answer(info, kit.ask(max_tokens=1000, temperature=0))
        assert reply["usage"]["total_tokens"] == 40
        with pytest.raises(EngineError, match=r"the prompt has \d{3} tokens.*may have 40"):
            kit.answer(info, kit.ask("order " * 200))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", {"type": "json_object"}),
        ("tool_choice", "required"),
        ("frequency_penalty", 0.5),
        ("top_logprobs", 3),
        ("stream", True),
        ("temperature", -1),
        ("max_tokens", 0),
        ("n", "two"),
        ("messages", []),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(kit, served, field, value):
    with pytest.raises(EngineError, match=field):
        kit.answer(served, kit.ask(**{field: value}))


def test_a_field_nobody_knows_is_warned_about_once(kit, untrained, caplog):
    with kit.serving(untrained) as (_, info):
        kit.answer(info, kit.ask(typical_p=0.5), kit.ask(typical_p=0.5))
    assert caplog.text.count("typical_p") == 1


@pytest.mark.parametrize(
    "message",
    [
        {"content": "no role"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "stock", "arguments": "{broken"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"type": "custom"}]},
    ],
)
def test_a_message_that_cannot_be_templated_is_refused_with_its_place(kit, served, message):
    with pytest.raises(EngineError, match=r"messages\[1\]"):
        kit.answer(served, {**kit.ask(), "messages": [{"role": "user", "content": "Hi"}, message]})


def test_content_in_parts_reads_like_plain_text(kit, served):
    parts = [{"type": "text", "text": "Please order 3 lamps."}]
    plain, in_parts = kit.answer(
        served, kit.ask(), {**kit.ask(), "messages": [{"role": "user", "content": parts}]}
    )
    assert plain["prompt_token_ids"] == in_parts["prompt_token_ids"]


def test_a_conversation_reads_the_same_whoever_sent_it(kit, served):
    """As the protocol has it, as frameworks send it, and as a row of ``datasets`` holds it."""
    call = {"id": "c", "type": "function", "function": {"name": "stock", "arguments": "{}"}}
    bare = {**call, "function": {"name": "stock", "arguments": None}}
    tool = kit.TOOLS[0]["function"]
    filled = {**tool["parameters"]["properties"], "of_another_row": None}
    asked = [
        ([call], [{"type": "function", "function": tool}]),
        ([bare], [{"type": "function", **tool, "strict": None}]),
        ([bare], [{**tool, "parameters": {**tool["parameters"], "properties": filled}}]),
    ]
    replies = kit.answer(
        served,
        *(
            {
                **kit.ask(tools=tools),
                "messages": [
                    {"role": "user", "content": "Hi", "name": None},
                    {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls},
                ],
            }
            for calls, tools in asked
        ),
    )
    assert len({tuple(reply["prompt_token_ids"]) for reply in replies}) == 1
