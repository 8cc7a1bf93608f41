"""Adding two small numbers: the smallest task on which a language model visibly learns."""

import random

NUMBERS = range(5)
PHRASES = ("{a}+{b}=", "What is {a}+{b}?", "{a} plus {b} is", "Add {a} and {b}.")


def tasks(train: int = 400, val: int = 100, *, seed: int = 0) -> tuple[list[dict], list[dict]]:
    """Questions to train on and to validate with; a quarter of all questions is held out for that."""
    chance = random.Random(seed)
    every = [(phrase, a, b) for phrase in PHRASES for a in NUMBERS for b in NUMBERS]
    random.Random(0).shuffle(every)
    quarter = len(every) // 4
    held_out = [question(*every[number % quarter]) for number in range(val)]
    return [question(*chance.choice(every[quarter:])) for _ in range(train)], held_out


def question(phrase: str, a: int, b: int) -> dict:
    """A row of the dataset; the built-in agent asks the model its ``prompt``."""
    return {"prompt": phrase.format(a=a, b=b), "answer": str(a + b)}


def reward(task: dict, output: str) -> float:
    """1 for the right number and nothing else."""
    return float(output.strip() == task["answer"])
