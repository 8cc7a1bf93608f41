"""``agl rescore`` as it is typed, and the commands that read its rewards."""

from __future__ import annotations

import json
import sys

import agentlightning as agl
import pytest
from agentlightning.cli import main
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store

STORE = "sqlite:///agentlightning.db"
JUDGES = """
import math

def length(task, output):
    return len(output)

async def strict(task, output, rollout):
    return 0.5 if rollout.mode == "test" else 1.0

def broken(task, output):
    return math.nan if task == "b" else 1

word = "no function"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with judges in it, and no store named by the environment."""
    monkeypatch.delenv("AGENTLIGHTNING_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "judges.py").write_text(JUDGES)
    yield tmp_path
    sys.modules.pop("judges", None)


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs ``agl`` with arguments; returns exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agl", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def run_id(folder):
    """A run of three rollouts by the tracer, with the rewards 0, 1 and 2."""
    tracer = agl.Tracer(STORE)
    for number, task in enumerate("abc"):
        with tracer.trace("helper", input=task) as trace:
            trace.output = "x" * number
            trace.reward(float(number))
    with open_store(STORE) as store:
        return store.runs()[0].run_id


def test_a_run_is_scored_anew_and_compared(command, run_id):
    code, out, err = command("rescore", run_id, "--reward", "judges:length")
    assert (code, err) == (0, "")
    assert "judges:length" in out
    assert "scored now: 3; scored before: 0" in out
    assert "over 3 rollouts: 1.000" in out
    assert "reward_version: judges:length" in out
    _, out, _ = command(
        "rescore", run_id, "--reward", "judges:strict", "--version", "strict", "--limit", 2, "--json"
    )
    told = json.loads(out)
    assert (told["scored"], told["new"]) == (2, {"version": "strict", "scored": 2, "mean": 0.5})
    _, out, _ = command(
        "rescore",
        run_id,
        "--reward",
        "judges:strict",
        "--version",
        "strict",
        "--make-current",
        "--json",
    )
    told = json.loads(out)
    assert (told["scored"], told["scored_before"], told["correlation"]) == (1, 2, None)
    with open_store(STORE) as store:
        assert {item.reward for item in store.rollouts(RolloutQuery()).items} == {0.5}


def test_a_reward_that_is_no_number_ends_in_an_error_after_the_others_are_stored(command, run_id):
    code, out, err = command("rescore", run_id, "--reward", "judges:broken", "--version", "v")
    assert code == 1
    assert "scored now: 2" in out
    assert "unscored: 1: the reward function failed: RewardError" in out
    assert "error: the reward of rollout ro-" in err
    assert "Traceback" not in err


def test_explain_and_report_read_the_version_that_is_asked_for(command, run_id):
    command("rescore", run_id, "--reward", "judges:strict", "--version", "strict")
    with open_store(STORE) as store:
        rollout_id = store.rollouts(RolloutQuery()).items[1].rollout_id
    code, out, _ = command("explain", rollout_id)
    assert "reward 1 of version agent" in out
    assert "not used: version 'strict', not 'agent'" in out
    code, out, _ = command("explain", rollout_id, "--reward-version", "strict")
    assert code == 0
    assert "reward 0.5 of version strict" in out
    code, out, _ = command("report", run_id, "--reward-version", "strict")
    assert code == 0
    assert "mean reward of version strict, test" in out
    assert "0.500 over 3 rollouts" in out
    told = json.loads(command("report", run_id, "--json")[1])
    assert (told["reward_version"], told["rewards"]) == ("agent", None)


@pytest.mark.parametrize("name", ["explain", "report"])
def test_a_version_that_is_not_there_is_told_with_those_that_are(command, run_id, name):
    command("rescore", run_id, "--reward", "judges:strict", "--version", "strict")
    with open_store(STORE) as store:
        rollout_id = store.rollouts(RolloutQuery()).items[0].rollout_id
    subject = {"explain": rollout_id, "report": run_id}[name]
    code, out, err = command(name, subject, "--reward-version", "kind")
    assert (code, out) == (1, "")
    assert "no reward of version 'kind'; there are: agent, strict." in err
    assert f"agl rescore {run_id}" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--reward", "judges:nobody"],
            "--reward: 'judges:nobody': the module 'judges' has no 'nobody'",
        ),
        (["--reward", "judges:word"], "--reward: got a str; expected a callable"),
        (["--reward", "judges:length", "--version", "agent"], "the version 'agent' is that of"),
        (["--reward", "judges:length", "--store", "sqlite:///none.db"], "no store at"),
    ],
)
def test_a_mistake_is_one_line_and_costs_nothing(command, run_id, arguments, message):
    code, out, err = command("rescore", run_id, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
