import math

import pytest
from agentlightning_rl.advantages import EPSILON, advantages, group_relative


def test_rewards_are_centred_and_scaled_by_the_groups_own_deviation():
    # mean 0.5, sample deviation sqrt((0.25 * 4) / 3)
    scale = math.sqrt(1 / 3) + EPSILON
    assert group_relative([0.0, 1.0, 1.0, 0.0]) == pytest.approx(
        [-0.5 / scale, 0.5 / scale, 0.5 / scale, -0.5 / scale]
    )


def test_three_different_rewards():
    # mean 2, deviation 1
    assert group_relative([1.0, 2.0, 3.0]) == pytest.approx([-1 / 1.0001, 0.0, 1 / 1.0001])


def test_a_member_without_a_reward_takes_no_part():
    with_gap = group_relative([1.0, None, 2.0, 3.0])
    assert with_gap[1] is None
    assert [value for value in with_gap if value is not None] == group_relative([1.0, 2.0, 3.0])


@pytest.mark.parametrize("rewards", [[0.1] * 3, [5.0], [0.0, 0.0], [-1e9, -1e9]])
def test_nothing_is_learned_from_equal_rewards_or_a_group_of_one(rewards):
    assert group_relative(rewards) == [0.0] * len(rewards)


def test_one_scored_member_among_unscored_ones_is_finite_and_zero():
    assert group_relative([None, 3.0, None]) == [None, 0.0, None]


def test_a_group_without_any_reward_has_no_advantage():
    assert group_relative([None, None]) == [None, None]
    assert group_relative([]) == []


def test_a_batch_counts_groups_from_which_nothing_is_learned():
    found = advantages([{"a": 1.0, "b": 0.0}, {"c": 1.0, "d": 1.0}, {"e": None, "f": 2.0}, {"g": None}])
    assert found.values.keys() == {"a", "b", "c", "d", "e", "f", "g"} - {"e", "g"}
    assert (found.groups, found.zero_groups, found.unscored) == (4, 3, 2)
    assert found.values["a"] == -found.values["b"] > 0
