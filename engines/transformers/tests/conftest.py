import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import asyncio
import sys
from contextlib import contextmanager

import pytest
import torch
from agentlightning_transformers.engine import TransformersEngine
from agentlightning_transformers.tiny import build_tiny_policy, render
from transformers import AutoModelForCausalLM, AutoTokenizer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "stock",
            "description": "Tell whether there is enough.",
            "parameters": {
                "type": "object",
                "properties": {"item": {"type": "string"}, "quantity": {"type": "integer"}},
            },
        },
    }
]
CHAT = [
    {"role": "user", "content": "Please order 3 lamps."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "stock", "arguments": '{"item": "lamps", "quantity": 3}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "enough"},
    {"role": "assistant", "content": "I ordered 3 lamps."},
]


def ask(text="Please order 3 lamps.", **fields):
    return {
        "model": "any",
        "messages": [{"role": "user", "content": text}],
        "logprobs": True,
        "return_token_ids": True,
        "max_tokens": 12,
        **fields,
    }


@contextmanager
def serving(directory, **options):
    engine = TransformersEngine(str(directory), **options)
    try:
        yield engine, engine.start()
    finally:
        engine.stop()


def answer(info, *bodies):
    """The replies, all asked for at once."""

    async def together():
        return await asyncio.gather(*(info.chat(body) for body in bodies))

    return asyncio.run(together())


@pytest.fixture(scope="session")
def kit():
    """The constants and functions of this file: test modules cannot import it."""
    return sys.modules[__name__]


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    return build_tiny_policy(tmp_path_factory.mktemp("untrained"), [render(CHAT, TOOLS)] * 20, seed=1)


@pytest.fixture(scope="session")
def trained(untrained, tmp_path_factory):
    """The tiny policy after it has learnt CHAT by heart."""
    tokenizer = AutoTokenizer.from_pretrained(untrained)
    model = AutoModelForCausalLM.from_pretrained(untrained)
    batch = tokenizer.apply_chat_template(
        CHAT, tools=TOOLS, return_dict=True, return_assistant_tokens_mask=True
    )
    ids = torch.tensor([batch["input_ids"]])
    labels = ids.masked_fill(torch.tensor([batch["assistant_masks"]]) == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.05
    directory = tmp_path_factory.mktemp("trained")
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def plain_logprobs(module, reply, temperature, choice=0):
    """The log-probabilities of a reply's tokens by one plain forward pass."""
    prompt, sampled = reply["prompt_token_ids"], reply["choices"][choice]["token_ids"]
    with torch.no_grad():
        logits = module(input_ids=torch.tensor([prompt + sampled])).logits[0, len(prompt) - 1 : -1]
    table = torch.log_softmax(logits.float() / temperature, dim=-1)
    return table.gather(1, torch.tensor(sampled).unsqueeze(1)).squeeze(1).tolist()


def told_logprobs(reply, choice=0):
    return [entry["logprob"] for entry in reply["choices"][choice]["logprobs"]["content"]]
