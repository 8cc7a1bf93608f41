from dataclasses import dataclass

import numpy as np
import pytest
from agentlightning.agent import Result, normalise_return


@dataclass
class Answer:
    text: str


@pytest.mark.parametrize(
    ("returned", "output", "rewards"),
    [
        (None, None, []),
        (1.0, 1.0, [("reward", 1.0)]),
        (3, 3, [("reward", 3)]),
        (True, True, [("reward", True)]),
        (False, False, [("reward", False)]),
        ("done", "done", []),
        ({"a": [1, (2, 3)]}, {"a": [1, [2, 3]]}, []),
        (np.float32(0.5), 0.5, [("reward", 0.5)]),
        (np.bool_(True), True, [("reward", True)]),
        (np.int64(2), 2, [("reward", 2)]),
        (np.array([1.0, 2.0]), "[1. 2.]", []),
        (Answer("x"), "Answer(text='x')", []),
        (Result("x"), "x", []),
        (Result("x", reward=0.0), "x", [("reward", 0.0)]),
        (Result("x", 1.0, {"style": 0.5}), "x", [("style", 0.5), ("reward", 1.0)]),
        (Result(np.float64(2.0)), 2.0, []),
    ],
)
def test_a_return_is_split_into_output_and_rewards(returned, output, rewards):
    assert normalise_return(returned, has_reward_function=False) == (output, tuple(rewards))


@pytest.mark.parametrize("returned", [1.0, True, np.float32(1.0), Result(1.0, reward=0.5)])
def test_with_a_reward_function_a_return_is_the_output_only(returned):
    output, rewards = normalise_return(returned, has_reward_function=True)

    assert output == 1.0
    assert rewards == ()


def test_the_type_of_an_output_is_kept():
    assert normalise_return(True, has_reward_function=True)[0] is True
    assert type(normalise_return(np.int64(2), has_reward_function=False)[0]) is int
