"""A run whose configuration names a version of rewards: what is recorded, read and told."""

from __future__ import annotations

import json

import agentlightning as agl
import pytest
from agentlightning.errors import AlgorithmError, ConfigError
from agentlightning.samples import CreditRules, recorded_rules, rewards
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store


@agl.algorithm("look-at-rewards")
def look_at_rewards(ctx, rules_version: str = "agent"):
    """Runs the agent on the tasks and validates, and keeps what it was told."""
    batch = ctx.rollouts(ctx.train, rules=CreditRules(version=rules_version), key="all").wait()
    ctx.log({"train/reward": sum(result.reward for result in batch) / len(batch)}, 0)
    ctx.evaluate(step=0)
    ctx.checkpoint({"rules": [result.rules.version for result in batch]})
    return ctx.resources.resources


def agent(task):
    return agl.Result(output=task, reward=100.0)


def trained(folder, **keys):
    trainer = agl.Trainer(
        algorithm="look-at-rewards",
        model="owner/name",
        store=f"sqlite:///{folder}/runs.db",
        run_dir=str(folder / "run"),
        **keys,
    )
    return trainer.fit(agent, [1, 2, 3], [4])


def test_the_reward_functions_values_are_of_the_version_and_read_as_such(tmp_path, capsys):
    done = trained(tmp_path, reward_function=lambda task, output: output / 10, reward_version="tenth")
    with open_store(f"sqlite:///{tmp_path}/runs.db") as store:
        rollouts = store.rollouts(RolloutQuery(run_id=done.run_id)).items
        spans = list(store.spans([item.rollout_id for item in rollouts]))
        assert store.load_state(done.run_id) == {"rules": ["tenth"] * 3}
    assert done.reward_after == 0.4
    assert sorted(item.value for item in rewards(spans, "tenth")) == [0.1, 0.2, 0.3, 0.4]
    assert {item.source for item in rewards(spans, "tenth")} == {"function"}
    assert rewards(spans, "agent") == []
    assert {recorded_rules(item)[0].version for item in rollouts} == {"tenth"}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["reward_version"] == "tenth"
    told = capsys.readouterr().err
    assert "as version 'tenth'" in told
    assert "0.400 before, 0.400 after (version tenth)" in told


def test_a_run_that_names_none_uses_its_own(tmp_path):
    done = trained(tmp_path)
    assert done.reward_after == 100.0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["reward_version"] == "agent"


def test_a_run_goes_on_with_the_version_it_was_started_with(tmp_path):
    done = trained(tmp_path)
    with pytest.raises(ConfigError, match=r"made with reward_version 'agent' .* says 'judge'"):
        trained(
            tmp_path,
            resume=done.run_id,
            reward_function=lambda task, output: 1,
            reward_version="judge",
        )
    assert trained(tmp_path, resume=done.run_id).reward_after == 100.0


def test_an_algorithm_that_asks_for_another_version_is_refused(tmp_path):
    with pytest.raises(AlgorithmError, match=r"version 'mine' and the configuration for 'agent'"):
        trained(tmp_path, rules_version="mine")
