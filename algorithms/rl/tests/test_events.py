"""What a run says of numbers that look wrong."""

import logging
from types import SimpleNamespace

import pytest
from agentlightning.errors import AlgorithmError
from agentlightning_rl.config import RLConfig
from agentlightning_rl.events import StepEvents

GOOD = {
    "loss": 0.0,
    "grad_norm": 1.0,
    "entropy": 1.3,
    "logprob_gap": 1e-5,
    "reward": 0.5,
    "reward_min": 0.0,
}


@pytest.fixture
def log(context):
    ctx = context()
    events = StepEvents(ctx, RLConfig(learning_rate=1e-3), lending=None, publisher=None)

    def write(step, **numbers):
        state = SimpleNamespace(global_step=step, max_steps=50)
        events.on_log(None, state, None, logs=GOOD | numbers)
        return ctx.metrics[step]

    return write


def test_a_collapse_is_warned_of_and_logged_while_the_run_goes_on(log, caplog):
    with caplog.at_level(logging.WARNING, logger="agentlightning.rl"):
        healthy = [log(step)["train/collapse"] for step in range(1, 6)]
        ill = [log(n, entropy=3.0, reward=0.0)["train/collapse"] for n in range(6, 12)]
    assert healthy == [0.0] * 5
    assert ill[-1] == 1.0
    assert "the policy is collapsing" in caplog.text


def test_a_gradient_that_is_not_finite_ends_the_run_and_names_the_last_good_step(log):
    with pytest.raises(
        AlgorithmError, match=r"step 3: the gradient's norm is nan.*kept are those after step 0"
    ):
        log(3, grad_norm=float("nan"))


def test_log_probabilities_of_other_weights_are_warned_of_once(log, caplog):
    with caplog.at_level(logging.WARNING, logger="agentlightning.rl"):
        log(1, logprob_gap=0.4)
        log(2, logprob_gap=0.4)
    assert caplog.text.count("differ from the trainer's by 0.400 nats") == 1
