import subprocess
import sys

import msgspec
import pytest
from agentlightning.config import load_config
from agentlightning.errors import ConfigError
from agentlightning_rl.config import RLConfig


def read(**keys):
    return msgspec.convert(keys, RLConfig)


def test_the_configuration_is_read_without_torch():
    code = "import agentlightning_rl.config, agentlightning_rl.algorithm, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("policy", ["ppo", "dapo", "dr_grpo", "Flow-GRPO"])
def test_a_policy_that_comes_later_says_so_in_one_line(policy):
    with pytest.raises(msgspec.ValidationError, match="comes later; this version has grpo"):
        read(policy=policy)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"policy": "trpo"}, "policy: 'trpo' is unknown; known: grpo; did you mean 'grpo'\\?"),
        ({"batch_size": 12}, "expected a multiple of group_size, such as 16"),
        ({"batch_size": 2}, "expected a multiple of group_size, such as 8"),
        ({"group_size": 1}, "expected 2 or more rollouts per task"),
        ({"learning_rate": 0}, "learning_rate: 0.0 is not possible; expected more than 0"),
        ({"temperature": -1.0}, "temperature"),
        ({"beta": -0.1}, "beta"),
        ({"clip": 1.5}, "between 0 and 1"),
        ({"max_staleness": 2}, "max_staleness: 2 comes later"),
        ({"lora": {"lora_dropout": 0.1}}, "lora_dropout has no effect"),
        ({"tla_window": 4}, "set use_tla: true"),
        ({"use_tla": True, "tla_window": 0}, "tla_window"),
        ({"learning_rat": 1.0}, "learning_rat"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(keys, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        read(**keys)


def test_a_hosted_model_is_refused_before_anything_is_spent():
    with pytest.raises(
        ConfigError, match=r"'gpt-4'.*hosted.*a later version.*prompt_optimization.*sft"
    ):
        load_config({"algorithm": "rl", "model": "gpt-4", "batch_size": 32, "learning_rate": 0.001})


def test_a_policy_named_as_the_algorithm_is_that_policy(tiny_model):
    assert load_config({"algorithm": "grpo", "model": str(tiny_model)}).options.policy == "grpo"
    with pytest.raises(ConfigError, match="'ppo' comes later"):
        load_config({"algorithm": "ppo", "model": str(tiny_model)})


def test_use_tla_is_level_trajectory_with_its_window():
    config = read(use_tla=True, tla_window=100)
    assert config.row_level == "trajectory"
    assert config.limits.window == 100
    assert read().row_level == "transition"


def test_the_guides_numbers_are_taken():
    config = read(policy="grpo", batch_size=32, learning_rate=0.001, use_tla=True)
    assert config.tasks_per_step == 4


@pytest.mark.parametrize(
    ("keys", "tasks", "steps"),
    [
        ({"steps": 7}, 3, 7),
        ({}, 8, 2),
        ({}, 9, 3),
        ({"epochs": 3}, 9, 7),
        ({"steps": 7, "epochs": 9}, 1, 7),
    ],
)
def test_steps_or_epochs_set_the_length(keys, tasks, steps):
    assert read(**keys).total_steps(tasks) == steps
