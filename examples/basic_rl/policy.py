"""A tiny policy, and a warm start after which it knows half of every sum."""

import random
from pathlib import Path

from agentlightning_transformers.tiny import build_tiny_policy, render
from task import NUMBERS, PHRASES, question

WARM_START = {
    "steps": 300,
    "batch_size": 32,
    "learning_rate": 3e-3,
    "lr_schedule": "cosine",
    "warmup_steps": 30,
    "adam_beta2": 0.98,
}


def traces(count: int = 2000, *, seed: int = 0) -> list[dict]:
    """Sums with their answer as chats; every other answer is made up."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        task = question(chance.choice(PHRASES), chance.choice(NUMBERS), chance.choice(NUMBERS))
        answer = task["answer"] if number % 2 else str(chance.randrange(2 * max(NUMBERS) + 1))
        rows.append(
            {
                "messages": [
                    {"role": "user", "content": task["prompt"]},
                    {"role": "assistant", "content": answer},
                ]
            }
        )
    return rows


def build(directory: Path, examples: list[dict], *, seed: int = 0) -> Path:
    """Write an untrained policy whose tokenizer was learnt from the conversations it will have."""
    return build_tiny_policy(directory, [render(row["messages"]) for row in examples], seed=seed)
