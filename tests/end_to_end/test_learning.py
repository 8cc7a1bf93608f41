"""The demo, smaller: the same agent, policy, warm start and configuration, in fewer steps.

Validation is sampled at temperature 1 here. Greedy validation jumps as soon as the likeliest reply
changes, with or without a reason, so it could not tell learning from chance.
"""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys

import agentlightning as agl
import pytest
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store

from tests.end_to_end.conftest import EXAMPLES

DEMO = EXAMPLES / "langchain_tool_agent"
STEPS = 20
KEPT = 32


@pytest.fixture(scope="module")
def demo():
    """The modules of the example, importable as its script imports them."""
    sys.path.insert(0, str(DEMO))
    try:
        yield {name: importlib.import_module(name) for name in ("policy", "shop", "traces")}
    finally:
        sys.path.remove(str(DEMO))


@pytest.fixture(scope="module")
def warm_model(demo, tmp_path_factory):
    """The policy after its warm start by SFT."""
    folder = tmp_path_factory.mktemp("warm")
    examples = demo["traces"].traces(seed=0)
    result = agl.Trainer(
        algorithm="sft",
        model=str(demo["policy"].build(folder / "base", examples)),
        run_dir=str(folder),
        store=f"sqlite:///{folder}/run.db",
        **demo["policy"].WARM_START,
    ).train(examples)
    return result.resources.llm().model


def train(demo, model, run_dir, reward):
    tasks, val = demo["shop"].tasks(seed=0)
    return agl.Trainer(
        DEMO / "config.yaml",
        model=model,
        reward_function=reward,
        steps=STEPS,
        run_dir=str(run_dir),
        store=f"sqlite:///{run_dir}/run.db",
        runners={
            "count": 64,
            "executor": {"name": "processes", "processes": 2},
            "environment": {"DESK_TEMPERATURE": "1"},
        },
    ).fit(train=tasks, val=val)


class Shuffled:
    """The rewards that were earned, handed out to other rollouts: their mean stays, their sense goes."""

    def __init__(self, reward):
        self.reward = reward
        self.earned = []
        self.chance = random.Random(0)

    def __call__(self, task, output, rollout):
        reward = self.reward(task, output)
        if rollout.mode == "val":
            return reward
        self.earned.append(reward)
        enough = len(self.earned) > KEPT
        return self.earned.pop(self.chance.randrange(len(self.earned))) if enough else None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_agent_learns_and_what_it_learnt_can_be_used(demo, warm_model, tmp_path):
    result = train(demo, warm_model, tmp_path, "shop:reward")
    assert result.reward_after >= result.reward_before + 0.2
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["reward_after"] == result.reward_after
    assert summary["llm_calls"] > summary["rollouts"] > STEPS * 64
    assert summary["peak_memory_mb"] < 3000
    check_the_record(f"sqlite:///{tmp_path}/run.db", result.run_id)
    check_the_model(result.resources.llm().model)


def check_the_record(store_url, run_id):
    with open_store(store_url) as store:
        validated = store.rollouts(RolloutQuery(run_id=run_id, mode="val")).items
        trained = store.rollouts(RolloutQuery(run_id=run_id, mode="train", limit=64)).items
        spans = list(store.spans([trained[-1].rollout_id]))
    inputs = [json.dumps(rollout.input) for rollout in trained]
    assert not set(inputs) & {json.dumps(rollout.input) for rollout in validated}
    calls = [span.call for span in spans if span.call]
    assert {call.agent for call in calls} == {"order_desk"}
    assert all(call.prompt_ids and call.choices[0].logprobs for call in calls)
    assert {span.kind for span in spans} >= {"agent", "llm", "tool", "reward"}


def check_the_model(directory):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Please order 3 lamps."}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    assert model.generate(**prompt, max_new_tokens=4).shape[1] > prompt["input_ids"].shape[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_script_trains_a_model_given_by_its_directory(warm_model, tmp_path):
    run_script("langchain_tool_agent", "--model", warm_model, "--steps", "1", cwd=tmp_path)
    summary = json.loads((tmp_path / "runs/langchain_tool_agent/summary.json").read_text())
    assert summary["status"] == "succeeded"
    assert summary["reward_before"] is not None


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_plain_dataset_trains_the_built_in_agent(tmp_path):
    run_script("basic_rl", "--steps", "2", cwd=tmp_path)
    summary = json.loads((tmp_path / "runs/basic_rl/summary.json").read_text())
    assert summary["rollouts"] == 2 * 128 + 2 * 100


def run_script(example, *arguments, cwd):
    command = [sys.executable, str(EXAMPLES / example / "train.py"), *arguments]
    subprocess.run(command, cwd=cwd, check=True, timeout=540)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_with_shuffled_rewards_it_does_not(demo, warm_model, tmp_path):
    result = train(demo, warm_model, tmp_path, Shuffled(demo["shop"].reward))
    # 128 sampled rollouts twice: the difference has a standard error of 0.06.
    assert result.reward_after < result.reward_before + 0.15
