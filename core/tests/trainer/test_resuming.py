"""Whole runs of small algorithms, stopped in the midst and gone on with."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import agentlightning as agl
import pytest
from agentlightning.algorithm import algorithm
from agentlightning.errors import BudgetExhausted, ConfigError, RunInterrupted
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store
from agentlightning.trainer.occupancy import OWNER_FILE, check_free, occupied

TASKS = ["a", "b", "c", "d"]


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


class Runs:
    """Runs of one configuration, whose algorithm is whatever the test says."""

    def __init__(self, folder, body):
        self.config = {
            "algorithm": "body",
            "model": "none",
            "store": f"sqlite:///{folder}/run.db",
            "run_dir": str(folder / "run"),
            "runners": {"count": 2},
        }
        self.asked = []
        self._body = body

    def start(self, body, *, val=(), **keys):
        self._body.now = body
        trainer = agl.Trainer(self.config, **keys)
        return trainer.fit(self.agent, TASKS, list(val) or None)

    def agent(self, task):
        self.asked.append(task)
        return 1.0

    @property
    def run(self):
        with open_store(self.config["store"]) as store:
            return store.runs()[0]

    def statuses(self):
        with open_store(self.config["store"]) as store:
            return [rollout.status for rollout in store.rollouts(RolloutQuery()).items]

    def summary(self):
        return json.loads(Path(self.config["run_dir"], "summary.json").read_text())


@pytest.fixture
def runs(tmp_path):
    body = SimpleNamespace()

    @algorithm("body")
    def call(ctx):
        """What the test says."""
        body.now(ctx)
        return ctx.resources.resources

    return Runs(tmp_path, body)


def ask_all(ctx):
    return ctx.rollouts(ctx.train, key="all").wait()


def ask_all_and_stop(ctx):
    ask_all(ctx)
    press_ctrl_c()


def test_an_algorithm_that_returns_early_leaves_a_cancelled_run(runs):
    with pytest.raises(RunInterrupted):
        runs.start(ask_all_and_stop)
    assert runs.run.status == runs.summary()["status"] == "cancelled"


def test_a_script_ends_with_the_exit_code_of_ctrl_c_and_no_traceback():
    script = "from agentlightning.errors import RunInterrupted\nraise RunInterrupted from ValueError()"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_workers_claim_no_more_while_the_algorithm_is_busy(runs):
    def busy(ctx):
        batch = ctx.rollouts(ctx.train * 50)
        next(iter(batch))
        press_ctrl_c()
        time.sleep(1.0)
        asked = len(runs.asked)
        time.sleep(0.3)
        assert len(runs.asked) == asked < len(batch)

    with pytest.raises(RunInterrupted):
        runs.start(busy)


def test_nothing_stays_unfinished_when_a_run_ends(runs):
    runs.start(lambda ctx: next(iter(ctx.rollouts(ctx.train * 50))))
    assert set(runs.statuses()) == {"succeeded", "cancelled"}


def test_rollouts_and_validations_of_before_are_not_paid_again(runs):
    def work(ctx):
        ctx.publish({"hint": "served anew at each start"})
        ctx.evaluate(step=0)
        ask_all(ctx)

    def work_and_stop(ctx):
        work(ctx)
        press_ctrl_c()

    with pytest.raises(RunInterrupted):
        runs.start(work_and_stop, val=["v"])
    result = runs.start(work, val=["v"], resume=runs.run.run_id)
    assert sorted(runs.asked) == [*TASKS, "v"]
    assert runs.summary()["rollouts"] == 5
    assert result.reward_before == 1.0


def test_another_version_at_the_same_step_is_validated_on_its_own(runs):
    def work(ctx):
        for hint in ("first", "second"):
            ctx.publish({"hint": hint})
            ctx.evaluate(step=0)

    runs.start(work, val=["v"])
    assert runs.asked == ["v", "v"]


def test_a_reward_function_is_asked_once_for_each_rollout(runs):
    scored = []

    def score(task, output):
        scored.append(task)
        return len(scored)

    with pytest.raises(RunInterrupted):
        runs.start(ask_all_and_stop, reward_function=score)
    seen = {}
    runs.start(
        lambda ctx: seen.update({r.rollout.input: r.rewards for r in ask_all(ctx)}),
        reward_function=score,
        resume=runs.run.run_id,
    )
    assert sorted(scored) == TASKS
    assert sorted(rewards["reward"] for rewards in seen.values()) == [1, 2, 3, 4]


def test_a_used_up_budget_does_not_refuse_what_is_paid(runs):
    budget = {"rollouts": len(TASKS)}
    with pytest.raises(RunInterrupted):
        runs.start(ask_all_and_stop, budget=budget)

    def work(ctx):
        assert ctx.budget.left("rollouts") == 0
        assert len(ask_all(ctx)) == len(TASKS)
        with pytest.raises(BudgetExhausted):
            ctx.rollouts(ctx.train, key="more")

    runs.start(work, budget=budget, resume=runs.run.run_id)
    assert len(runs.asked) == len(TASKS)


def test_a_budget_that_ends_a_run_is_no_interruption(runs):
    def work(ctx):
        ask_all(ctx)
        assert ctx.stopping()
        assert not ctx.interrupted()

    runs.start(work, budget={"rollouts": len(TASKS)})
    assert runs.run.status == "succeeded"


def test_a_run_that_somebody_trains_is_not_resumed(runs):
    def work(ctx):
        batch = ctx.rollouts(ctx.train, key="all")
        with pytest.raises(
            ConfigError, match=f"process {os.getpid()} is training run {ctx.run.run_id}"
        ):
            agl.Trainer(runs.config, resume=ctx.run.run_id).fit(runs.agent, TASKS)
        assert {result.status for result in batch.wait()} == {"succeeded"}

    runs.start(work)


def test_a_killed_trainer_keeps_nobody_out(tmp_path):
    script = (
        "import os, pathlib, sys; from agentlightning.trainer.occupancy import occupied\n"
        "with occupied(pathlib.Path(sys.argv[1]), 'run-1'): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / OWNER_FILE).exists()
    assert check_free(tmp_path) == "run-1"


@pytest.mark.parametrize("is_told", [True, False])
def test_whoever_goes_on_with_a_run_that_others_may_train_is_warned(runs, tmp_path, capsys, is_told):
    runs.start(ask_all)
    run_id = runs.run.run_id
    with open_store(runs.config["store"]) as store:
        store.set_run_status(run_id, "open")  # what a killed trainer leaves, and one that is at work
    if is_told:
        dead = {"run": run_id, "host": socket.gethostname(), "pid": os.getpid(), "started": 0.0}
        (tmp_path / "run" / OWNER_FILE).write_text(json.dumps(dead))
    runs.start(ask_all, resume=run_id)
    assert ("if one is at work elsewhere, stop it" in capsys.readouterr().err) == (not is_told)


def test_a_process_that_got_the_number_of_a_killed_trainer_keeps_nobody_out(tmp_path):
    with occupied(tmp_path, "run-1"):
        owner = json.loads((tmp_path / OWNER_FILE).read_text())
        (tmp_path / OWNER_FILE).write_text(json.dumps(owner | {"started": owner["started"] - 60}))
        check_free(tmp_path)


def test_a_summary_that_cannot_be_written_does_not_hide_the_error(runs, tmp_path, caplog):
    def break_the_folder(ctx):
        (tmp_path / "run" / "summary.json").mkdir()
        raise ZeroDivisionError("the algorithm's own")

    with pytest.raises(ZeroDivisionError, match="own"):
        runs.start(break_the_folder)
    assert "could not be written" in caplog.text
    assert runs.run.status == "failed"
