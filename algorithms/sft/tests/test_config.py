"""The configuration, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from agentlightning.config import load_config
from agentlightning.errors import ConfigError
from agentlightning_sft.config import SFTConfig


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"epochs": 0}, "epochs"),
        ({"steps": 0}, "steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"adam_beta2": 1.0}, "adam_beta2"),
        ({"batch_size": 16, "micro_batch_size": 5}, "micro_batch_size: 5 does not divide"),
        ({"reward_threshold": 0.5}, "set source_run"),
        ({"best_per_task": 1}, "set source_run"),
        ({"batch_sise": 3}, "batch_size"),
        ({"lr_schedule": "steps"}, "lr_schedule"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tiny_model: Path, keys: dict, what: str):
    with pytest.raises(ConfigError, match=what) as raised:
        load_config(algorithm="sft", model=str(tiny_model), **keys)
    assert "\n" not in str(raised.value)


def test_a_hosted_model_is_refused_with_what_can_be_done():
    with pytest.raises(ConfigError, match=r"gpt-4.*fine-tuning through the provider"):
        load_config({"algorithm": "sft", "train_dataset": [], "model": "gpt-4", "epochs": 3})


def test_the_keys_are_found_through_the_plugin(tiny_model: Path):
    config = load_config({"algorithm": "sft", "model": str(tiny_model), "epochs": 3})
    assert isinstance(config.options, SFTConfig)
    assert config.options.total_steps(33) == 9
    assert config.options.needs_tasks
    assert not SFTConfig(source_run="traces").needs_tasks


def test_checking_a_configuration_imports_no_torch():
    code = (
        "import sys; import agentlightning_sft.config, agentlightning_sft.algorithm; "
        "sys.exit(sum(name in sys.modules for name in ('torch', 'transformers', 'trl')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
