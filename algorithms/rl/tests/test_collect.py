import pytest
from agentlightning.errors import NoSamples
from agentlightning.samples import Limits
from agentlightning_rl.collect import collect


def collected(results, *, level="transition", version=1, limits=None):
    return collect(results, level=level, limits=limits or Limits(), version=version)


def test_advantages_are_per_rollout_whatever_its_number_of_calls(result):
    found = collected([result("a", "g", 1.0, calls=5), result("b", "g", 0.0, calls=1)])
    assert len(found.rows) == 6
    assert found.advantages["a"] == -found.advantages["b"]
    assert sum(row.weight for row in found.rows if row.rollout_id == "a") == pytest.approx(1.0)
    assert found.metrics["train/reward"] == 0.5


def test_level_trajectory_merges_the_calls_of_a_rollout(result):
    found = collected(
        [result("a", "g", 1.0, calls=3), result("b", "g", 0.0, calls=2)], level="trajectory"
    )
    assert [row.rollout_id for row in found.rows] == ["a", "b"]
    assert found.metrics["fidelity/merged"] == 3


def test_an_unscored_or_failed_rollout_gives_no_row_and_is_no_zero(result):
    found = collected(
        [
            result("a", "g", 1.0),
            result("b", "g", None),
            result("c", "g", 0.0, status="failed"),
            result("d", "g", 0.5),
        ]
    )
    assert {row.rollout_id for row in found.rows} == found.advantages.keys() == {"a", "d"}
    assert found.metrics["train/reward"] == 0.75
    assert [found.metrics[f"train/{name}"] for name in ("scored", "unscored", "failed")] == [2, 1, 1]
    assert found.metrics["fidelity/dropped/unscored"] == 2


def test_calls_of_other_weights_are_dropped_and_counted(result):
    found = collected([result("a", "g", 1.0, version=3), result("b", "g", 0.0, version=4)], version=4)
    assert [row.rollout_id for row in found.rows] == ["b"]
    assert found.metrics["fidelity/dropped/stale"] == 1


def test_a_batch_of_old_calls_says_so(result):
    with pytest.raises(NoSamples, match="2 calls: it was not sampled by the current weights"):
        collected([result("a", "g", 1.0), result("b", "g", 0.0)], version=7)


def test_groups_without_a_signal_are_counted(result):
    found = collected(
        [result("a", "g", 1.0), result("b", "g", 1.0), result("c", "h", 1.0), result("d", "h", 0.0)]
    )
    assert (found.metrics["train/groups"], found.metrics["train/zero_groups"]) == (2, 1)
    assert found.advantages["a"] == found.advantages["b"] == 0.0


def test_limits_drop_and_count(result):
    found = collected(
        [result("a", "g", 1.0, tokens=9), result("b", "g", 0.0)], limits=Limits(max_response_tokens=4)
    )
    assert [row.rollout_id for row in found.rows] == ["b"]
    assert found.metrics["fidelity/dropped/response_too_long"] == 1
