from importlib.metadata import distribution

import pytest
from agentlightning.errors import AlgorithmError
from agentlightning_rl.trl_check import USED, check_trl
from packaging.requirements import Requirement
from trl import GRPOTrainer


def test_the_installed_trl_passes():
    check_trl(GRPOTrainer)


def test_no_other_minor_version_of_trl_is_let_in():
    stated = map(Requirement, distribution("agentlightning-rl").requires)
    (trl,) = [requirement for requirement in stated if requirement.name == "trl"]
    (lowest,) = [bound.version for bound in trl.specifier if bound.operator == ">="]
    major, minor = map(int, lowest.split("."))
    let_in = [found in trl.specifier for found in (f"{major}.{minor}.9", f"{major}.{minor + 1}.0")]
    assert let_in == [True, False]


def test_a_method_that_moved_is_named():
    class Moved(GRPOTrainer):
        def _prepare_inputs(self, batch): ...

    Moved._compute_loss = None
    with pytest.raises(
        AlgorithmError, match="_prepare_inputs no longer takes generation_batch"
    ) as caught:
        check_trl(Moved)
    assert "_compute_loss is gone" in str(caught.value)


def test_every_method_that_is_used_is_checked():
    from agentlightning_rl.trainer import RowTrainer

    overridden = {name for name in vars(RowTrainer) if hasattr(GRPOTrainer, name)}
    assert overridden - {"__init__", "__module__", "__doc__"} <= USED.keys()
