"""What went wrong without ending a run is counted and told."""

from __future__ import annotations

import msgspec
import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.recording.sink import Sink
from agentlightning.records import RolloutRequest
from agentlightning.store.memory import MemoryStore
from agentlightning.trainer.scoring import Scorer
from agentlightning.trainer.trouble import count_trouble, told_trouble


@pytest.fixture
def store():
    with MemoryStore("memory://") as opened:
        yield opened


def test_a_crash_of_the_reward_function_is_counted_and_told_from_the_record(store):
    def reward(task, output):
        raise RuntimeError("no judge today")

    scorer, sink = Scorer(reward), Sink(store)
    claim = store.begin("r", RolloutRequest(input="x"), "w")
    rollout = msgspec.structs.replace(claim.rollout, status="succeeded")
    scorer.score(rollout)
    counted = count_trouble(Endpoint(store, sink), sink, scorer, store, claim.run.run_id)
    assert counted["trouble/reward_function_crashed"] == 1
    store.log_metrics(claim.run.run_id, 3, counted)
    assert told_trouble(store.metrics(claim.run.run_id))["reward_function_crashed"] == 1


def test_a_clean_run_has_none_of_its_own(store):
    run = store.create_run("r", {})
    sink = Sink(store)
    counted = count_trouble(Endpoint(store, sink), sink, Scorer(None), store, run.run_id)
    assert not {name for name in counted if "recording" not in name}
