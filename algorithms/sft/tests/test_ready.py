"""What is said before a run is made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentlightning.config import load_config
from agentlightning_sft.algorithm import SupervisedFineTuning

CHATS = [{"prompt": "a", "completion": "b"}]
TASKS = [{"prompt": "a"}]
FOR_AGENTS: dict[str, Any] = {
    "agent": "module:agent",
    "reward_function": "module:reward",
    "runners": {"count": 2},
    "engine": "transformers",
    "adapters": {"langchain": {}},
    "resources": {"prompt": "be kind"},
    "prompts": {"prompt": "desk"},
    "rollout": {"timeout_s": 5},
    "strict": True,
    "trained_agents": ["desk"],
}


@pytest.fixture
def warned(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    def check(val: list[Any], **keys: Any) -> str:
        caplog.clear()
        config = load_config({"algorithm": "sft", "model": str(tiny_model), **keys})
        with caplog.at_level(logging.WARNING, "agentlightning.sft"):
            SupervisedFineTuning(config.options).check(config, CHATS, val)
        return caplog.text

    return check


@pytest.mark.parametrize("val", [[], CHATS])
def test_keys_for_agents_are_named_where_none_is_run(warned, val):
    told = warned(val, **FOR_AGENTS)
    for key in FOR_AGENTS.keys() - {"resources"}:
        assert key in told
    assert warned(val) == ""


def test_with_tasks_to_validate_on_they_have_their_effect(warned):
    assert warned(TASKS, **FOR_AGENTS) == ""


def test_the_agents_of_a_recorded_run_can_be_chosen_among(warned):
    assert warned([], source_run="traces", trained_agents=["desk"]) == ""
