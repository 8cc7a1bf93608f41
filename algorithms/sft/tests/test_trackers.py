"""Experiment trackers, before anything is spent."""

from __future__ import annotations

import pytest
from agentlightning.errors import ConfigError
from agentlightning_sft.trackers import check_trackers


@pytest.mark.parametrize("report_to", [(), "none", "all", ["none"]])
def test_no_tracker_or_whatever_is_there_is_fine(report_to):
    check_trackers(report_to)


def test_an_unknown_tracker_is_answered_with_the_known_and_the_nearest():
    with pytest.raises(ConfigError, match=r"report_to: 'wanb' is no tracker; known: .*'wandb'"):
        check_trackers(["wanb"])


def test_a_tracker_that_is_not_installed_says_what_is_missing():
    with pytest.raises(ConfigError, match=r"report_to: 'comet_ml' cannot be used: .*comet"):
        check_trackers("comet_ml")
