"""Adding two small numbers: the smallest task on which a language model visibly learns."""

import random

NUMBERS = range(5)
HELD_OUT = 6  # of the 25 sums, only validated with


def tasks(train: int = 400, val: int = 48, *, seed: int = 0) -> tuple[list[dict], list[dict]]:
    """Questions to train on and to validate with; no sum is in both."""
    chance = random.Random(seed)
    sums = [(a, b) for a in NUMBERS for b in NUMBERS]
    random.Random(0).shuffle(sums)
    known, held_out = sums[HELD_OUT:], sums[:HELD_OUT]
    return [question(*chance.choice(known)) for _ in range(train)], [
        question(*held_out[number % HELD_OUT]) for number in range(val)
    ]


def question(a: int, b: int) -> dict:
    """A row of the dataset; the built-in agent asks the model its ``prompt``."""
    return {"prompt": f"{a}+{b}=", "answer": str(a + b)}


def reward(task: dict, output: str) -> float:
    """1 for the right number and nothing else."""
    return float(output.strip() == task["answer"])
