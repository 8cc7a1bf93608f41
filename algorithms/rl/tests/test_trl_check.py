import pytest
from agentlightning.errors import AlgorithmError
from agentlightning_rl.trl_check import USED, check_trl
from trl import GRPOTrainer


def test_the_installed_trl_passes():
    check_trl(GRPOTrainer)


@pytest.mark.parametrize("found", ["1.15.2", "1.17.0", "2.0.0"])
def test_another_version_is_refused_with_both_versions(found):
    with pytest.raises(AlgorithmError, match=rf"TRL {found} is installed.*<1.17,>=1.16"):
        check_trl(GRPOTrainer, found)


def test_a_method_that_moved_is_named():
    class Moved(GRPOTrainer):
        def _prepare_inputs(self, batch): ...

    Moved._compute_loss = None
    with pytest.raises(
        AlgorithmError, match="_prepare_inputs no longer takes generation_batch"
    ) as caught:
        check_trl(Moved, "1.16.3")
    assert "_compute_loss is gone" in str(caught.value)


def test_every_method_that_is_used_is_checked():
    from agentlightning_rl.trainer import RowTrainer

    overridden = {name for name in vars(RowTrainer) if hasattr(GRPOTrainer, name)}
    assert overridden - {"__init__", "__module__", "__doc__"} <= USED.keys()
