import pytest
from agentlightning_rl.watch import WINDOW, CollapseWatch


def messages(watch, steps):
    return [watch.update(n, reward=r, lowest=low, entropy=e) for n, (r, low, e) in enumerate(steps, 1)]


def collapse():
    """Entropy 1.3 to 3.0 and reward to 0 within 30 steps, as measured at learning rate 1e-3."""
    return [(max(0.0, 0.5 - step / 30), 0.0, 1.3 + 1.7 * step / 30) for step in range(30)]


def test_a_collapse_is_told_while_it_happens_with_what_to_do():
    found = messages(CollapseWatch(1e-3), collapse())
    told = [number for number, message in enumerate(found, 1) if message]
    assert WINDOW < told[0] < 25
    assert told[-1] == 30
    assert "learning_rate 0.001 is probably too high" in found[-1]


@pytest.mark.parametrize(
    "steps",
    [
        [(0.5 + n / 60, 0.0, 1.3 - n / 30) for n in range(30)],  # learning
        [(0.5 + n / 60, 0.0, 1.3 + n / 10) for n in range(30)],  # exploring
        [(max(0.0, 0.5 - n / 30), 0.0, 1.3) for n in range(30)],  # losing, at steady entropy
        [(0.5 + (n % 2) / 10, 0.0, 1.3 + (n % 3) / 10) for n in range(30)],  # noise
        [(0.0, 0.0, 1.3 + n / 10) for n in range(30)],  # never had a reward
        [(0.95, 0.0, 0.01 + n / 200) for n in range(30)],  # nearly deterministic
    ],
)
def test_anything_else_is_not(steps):
    assert not any(messages(CollapseWatch(1e-3), steps))


def test_negative_rewards_collapse_too():
    steps = [(r - 1.0, -1.0, e) for r, _, e in collapse()]
    assert any(messages(CollapseWatch(1e-3), steps))


@pytest.mark.parametrize("cut", [0, 2, 12])
def test_a_restart_goes_on_where_it_stopped(cut):
    whole = messages(CollapseWatch(1e-3), collapse())
    first, second = CollapseWatch(1e-3), CollapseWatch(1e-3)
    before = messages(first, collapse()[:cut])
    second.load(first.state())
    after = [
        second.update(n, reward=r, lowest=low, entropy=e)
        for n, (r, low, e) in enumerate(collapse()[cut:], cut + 1)
    ]
    assert [bool(m) for m in before + after] == [bool(m) for m in whole]
