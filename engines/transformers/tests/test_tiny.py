import time

import torch
from agentlightning_transformers.tiny import build_tiny_policy, render
from transformers import AutoModelForCausalLM, AutoTokenizer


def test_a_policy_is_built_in_seconds_and_plain_transformers_loads_it(kit, tmp_path):
    state = torch.random.get_rng_state()
    started = time.monotonic()
    build_tiny_policy(tmp_path, [render(kit.CHAT, kit.TOOLS)] * 2000)
    assert time.monotonic() - started < 5
    assert torch.equal(state, torch.random.get_rng_state())
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert model.num_parameters() < 500_000
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_seed_decides_the_weights(kit, tmp_path):
    weights = [
        AutoModelForCausalLM.from_pretrained(
            build_tiny_policy(tmp_path / str(place), ["some text"], seed=seed)
        ).model.embed_tokens.weight
        for place, seed in enumerate((1, 1, 2))
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_tokenizer_of_a_built_policy_is_exact(kit, untrained):
    tokenizer = AutoTokenizer.from_pretrained(untrained)
    odd = "Zwölf  lamps\n\t…and 1234 ☕ <tool_call>"
    assert tokenizer.decode(tokenizer(odd)["input_ids"]) == odd
    assert len(tokenizer("12345")["input_ids"]) == 5
    assert len(tokenizer("<tool_call>")["input_ids"]) == 1


def test_the_template_marks_exactly_what_the_assistant_says(kit, untrained):
    tokenizer = AutoTokenizer.from_pretrained(untrained)
    batch = tokenizer.apply_chat_template(
        kit.CHAT, tools=kit.TOOLS, return_dict=True, return_assistant_tokens_mask=True
    )
    marked = [
        token for token, mark in zip(batch["input_ids"], batch["assistant_masks"], strict=True) if mark
    ]
    assert tokenizer.decode(marked) == (
        '<tool_call>{"name": "stock", "arguments": {"item": "lamps", "quantity": 3}}</tool_call><|im_end|>'
        "I ordered 3 lamps.<|im_end|>"
    )


def test_a_prompt_is_the_beginning_of_the_conversation_it_leads_to(kit, untrained):
    tokenizer = AutoTokenizer.from_pretrained(untrained)
    whole = tokenizer.apply_chat_template(kit.CHAT, tools=kit.TOOLS, tokenize=False)
    for turns in (1, 3):
        prompt = tokenizer.apply_chat_template(
            kit.CHAT[:turns], tools=kit.TOOLS, tokenize=False, add_generation_prompt=True
        )
        assert whole.startswith(prompt)
    assert whole == render(kit.CHAT, kit.TOOLS)
    assert whole.startswith(
        "<|im_start|>system\nTools: stock(item, quantity)<|im_end|>\n<|im_start|>user\n"
    )


def test_a_system_prompt_stands_before_the_tools(kit, untrained):
    text = render([{"role": "system", "content": "Be brief."}, *kit.CHAT], kit.TOOLS)
    assert text.startswith("<|im_start|>system\nBe brief.\nTools: stock(item, quantity)<|im_end|>\n")
    assert text.count("system") == 1
