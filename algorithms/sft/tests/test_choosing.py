"""Which recorded rollouts are learned from."""

from __future__ import annotations

import pytest
from agentlightning.errors import ConfigError
from agentlightning.recording.attempt import reward_span
from agentlightning.records import AttemptKey
from agentlightning.samples import CreditRules
from agentlightning_sft.choosing import choose, find_run
from agentlightning_sft.config import SFTConfig

CALL = ([{"role": "user", "content": "Any lamps?"}], {"content": "Yes."})


def chosen(recorder, version="agent", **keys) -> tuple[list[str], dict[str, int]]:
    run = find_run(recorder.store, recorder.run_id)
    config, rules = SFTConfig(source_run=run.run_id, **keys), CreditRules(version=version)
    rollouts, dropped = choose(recorder.store, run, config, rules)
    return [rollout.rollout_id for rollout in rollouts], dict(dropped)


def test_all_training_rollouts_that_succeeded_are_taken_by_default(recorder):
    good = recorder.rollout(CALL, reward=1.0)
    unscored = recorder.rollout(CALL)
    recorder.rollout(CALL, reward=1.0, mode="val")
    recorder.rollout(CALL, reward=1.0, status="failed")
    ids, dropped = chosen(recorder)
    assert ids == [good.rollout.rollout_id, unscored.rollout.rollout_id]
    assert dropped == {"rollouts of mode val": 1, "rollouts that are failed": 1}


def test_a_threshold_leaves_out_the_worse_and_the_unscored(recorder):
    ids = [recorder.rollout(CALL, reward=value).rollout.rollout_id for value in (0.2, 0.5, None, 0.9)]
    kept, dropped = chosen(recorder, reward_threshold=0.5)
    assert kept == [ids[1], ids[3]]
    assert dropped == {"unscored rollouts": 1, "rollouts with a reward below 0.5": 1}


def test_the_version_of_rewards_says_which_are_the_better(recorder):
    ids = [recorder.rollout(CALL, reward=value).rollout.rollout_id for value in (0.2, 0.9)]
    with pytest.raises(ConfigError, match=r"version 'judge'; there are: agent\."):
        chosen(recorder, "judge", best_per_task=1)
    key = AttemptKey(ids[0], 1)
    recorder.store.add_spans([reward_span(key, 1.0, source="function", version="judge")])
    kept, dropped = chosen(recorder, "judge", reward_threshold=0.5)
    assert (kept, dropped) == ([ids[0]], {"unscored rollouts": 1})
    assert chosen(recorder, reward_threshold=0.5)[0] == [ids[1]]


def test_the_best_of_each_task_are_taken_and_the_earlier_of_equals(recorder):
    rewards = {"a": (0.1, 0.9, 0.9, -1.0), "b": (-2.0, -1.0)}
    ids = {
        group: [
            recorder.rollout(CALL, reward=value, group=group).rollout.rollout_id for value in values
        ]
        for group, values in rewards.items()
    }
    kept, dropped = chosen(recorder, best_per_task=1)
    assert kept == [ids["a"][1], ids["b"][1]]
    assert dropped == {"rollouts that others of their task beat": 4}
    assert chosen(recorder, best_per_task=2)[0] == [ids["a"][1], ids["a"][2], *ids["b"]]


def test_rollouts_without_a_group_are_tasks_of_their_own(recorder):
    ids = [recorder.rollout(CALL, reward=value).rollout.rollout_id for value in (0.1, 0.9)]
    assert chosen(recorder, best_per_task=1)[0] == ids


def test_a_run_is_found_by_id_and_the_latest_by_name(store):
    first, second = store.create_run("traces", {}), store.create_run("traces", {})
    assert find_run(store, first.run_id) == first
    assert find_run(store, "traces") == second


def test_an_unknown_run_is_named_with_those_there_are(store):
    run = store.create_run("traces", {})
    with pytest.raises(
        ConfigError, match=rf"source_run: .*'tracs'; its latest runs: traces \({run.run_id}\)"
    ):
        find_run(store, "tracs")
