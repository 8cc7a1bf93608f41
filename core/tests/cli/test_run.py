"""``agl run`` and ``agl workers`` on real stores, from the first claim to the counts at the end."""

from __future__ import annotations

import json
import sys
import threading
import time

import pytest
from agentlightning.cli import main
from agentlightning.records import RolloutConfig, RolloutRequest
from agentlightning.runner import KEPT_AS
from agentlightning.server import Server, build_app
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store
from agentlightning.store.waiting import wait

AGENTS = """
import os, time

def agent(task):
    if task == "raises":
        raise ValueError("no lamp")
    if task == "hangs":
        time.sleep(1)
    return {"said": task, "mode": os.environ.get("DESK_MODE")}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with a module of agents that is not on the path."""
    for variable in ("AGENTLIGHTNING_STORE", "AGENTLIGHTNING_STORE_TOKEN", "DESK_MODE"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "cli_agents.py").write_text(AGENTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


class Trainers:
    """A store, and runs in it as trainers have them."""

    def __init__(self, url, store):
        self.url = url
        self.store = store

    def make(self, **settings):
        run = self.store.create_run("shop", {KEPT_AS: settings} if settings else {})
        self.store.publish(run.run_id, {})
        return run.run_id

    def enqueue(self, run_id, *tasks, **config):
        requests = [RolloutRequest(input=it, config=RolloutConfig(**config)) for it in tasks]
        return [item.rollout_id for item in self.store.enqueue(run_id, requests)]

    def close_when_done(self, run_id, rollout_ids):
        """Close the run in the background once these are over, as a trainer does."""

        def close():
            wait(self.store, rollout_ids, timeout_s=30)
            self.store.set_run_status(run_id, "succeeded")

        threading.Thread(target=close, daemon=True).start()

    def rollouts(self):
        return self.store.rollouts(RolloutQuery()).items


@pytest.fixture
def trainers(folder):
    url = f"sqlite:///{folder}/runs.db"
    with open_store(url) as store:
        yield Trainers(url, store)


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


def test_it_works_until_the_run_is_closed_and_counts(command, trainers):
    run_id = trainers.make()
    trainers.close_when_done(run_id, trainers.enqueue(run_id, "a", "raises", "b"))

    code, out, err = command(
        "run", "--store", trainers.url, "--run", run_id, "--agent", "cli_agents:agent", "--json"
    )

    counts = json.loads(out)
    assert code == 0
    assert (counts["claimed"], counts["done"], counts["failed"], counts["running"]) == (3, 2, 1, 0)
    assert (counts["run_id"], counts["agent"]) == (run_id, "cli_agents:agent")
    assert f"for run {run_id} (shop) in {trainers.url}, 8 rollouts at once (threads)" in err
    assert err.splitlines()[-1] == "2 done, 1 failed, 0 running"


def test_processes_do_the_same(command, trainers):
    run_id = trainers.make(agent="cli_agents:agent")
    trainers.close_when_done(run_id, trainers.enqueue(run_id, *"abcdef"))

    code, out, _ = command(
        "run", "--store", trainers.url, "--run", run_id,
        "--executor", "processes", "--workers", "2", "--env", "DESK_MODE=fast", "--json",
    )  # fmt: skip

    assert code == 0
    assert json.loads(out)["done"] == 6
    assert {rollout.output["mode"] for rollout in trainers.rollouts()} == {"fast"}


def test_the_agent_and_its_settings_are_the_runs_own(command, trainers):
    run_id = trainers.make(agent="cli_agents:agent", variables=["DESK_MODE"])
    trainers.close_when_done(run_id, trainers.enqueue(run_id, "a"))

    code, _, err = command("run", "--store", trainers.url, "--run", run_id, "--workers", "1")

    assert code == 0
    assert "runs cli_agents:agent for run" in err
    assert trainers.rollouts()[0].output == {"said": "a", "mode": None}


def test_a_run_that_is_over_is_said_to_be_and_ends_it(command, trainers):
    run_id = trainers.make(agent="cli_agents:agent")
    trainers.store.set_run_status(run_id, "failed")

    code, _, err = command("run", "--store", trainers.url, "--run", run_id)

    assert code == 0
    assert "it is over: failed" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--run", "RUN"], "does not say by what name its agent is imported"),
        ([], "--agent: none given; name one, or a run (--run) that has one"),
        (["--run", "RUN", "--agent", "cli_agents:agnet"], "did you mean 'agent'?"),
        (["--run", "RUN", "--agent", "no_such_module:agent"], "there is no module 'no_such_module'"),
        (["--run", "run-none", "--agent", "cli_agents:agent"], "run-none"),
        (["--run", "RUN", "--agent", "cli_agents:agent", "--executor", "treads"], "'threads'"),
        (["--run", "RUN", "--agent", "cli_agents:agent", "--env", "=x"], "expected KEY=VALUE"),
    ],
)
def test_what_cannot_work_is_one_line(command, trainers, arguments, expected):
    run_id = trainers.make()
    given = [run_id if argument == "RUN" else argument for argument in arguments]

    code, out, err = command("run", "--store", trainers.url, *given)

    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert expected.replace("'threads'", "threads") in err.splitlines()[-1]
    assert "Traceback" not in err


def test_an_agent_that_hangs_does_not_keep_it(trainers, command, monkeypatch):
    left = []
    monkeypatch.setattr("agentlightning.cli.run_command.leave", left.append)
    run_id = trainers.make()
    trainers.close_when_done(run_id, trainers.enqueue(run_id, "hangs", timeout_s=0.1))

    code, out, _ = command(
        "run", "--store", trainers.url, "--run", run_id, "--agent", "cli_agents:agent", "--json"
    )

    assert (code, json.loads(out)["timed_out"], json.loads(out)["overdue"]) == (0, 1, 1)
    assert left == [0]  # it does not wait for threads as the end of a program does


# --- behind a server ----------------------------------------------------------------------------


@pytest.fixture
def served(trainers):
    with Server(build_app(store=trainers.store)) as server:
        yield server.url


def test_a_token_for_one_run_names_it(command, trainers, served, monkeypatch):
    others, run_id = trainers.make(), trainers.make(agent="cli_agents:agent")
    trainers.enqueue(others, "not mine")
    monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", trainers.store.access_token("runner", run_id))
    trainers.close_when_done(run_id, trainers.enqueue(run_id, "a", "b"))

    code, out, err = command("run", "--store", served, "--json")

    assert code == 0
    assert (json.loads(out)["run_id"], json.loads(out)["done"]) == (run_id, 2)
    assert "agl-runner" not in err
    assert trainers.store.statistics(others).rollouts["queued"] == 1

    code, _, err = command("run", "--store", served, "--run", others)
    assert code == 1
    assert f"the token in AGENTLIGHTNING_STORE_TOKEN is good for run {run_id} only" in err


def test_without_a_token_it_says_where_to_get_one(command, trainers, served):
    code, _, err = command("run", "--store", served, "--run", trainers.make(), "--agent", "a:b")

    assert code == 1
    assert "agl store token" in err


def test_a_store_that_stays_away_ends_it_with_an_error(command, trainers, monkeypatch):
    run_id = trainers.make(agent="cli_agents:agent")
    monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", trainers.store.access_token("runner"))
    server = Server(build_app(store=trainers.store))
    url = server.start()
    rollout_ids = trainers.enqueue(run_id, "a")

    def stop():
        wait(trainers.store, rollout_ids, timeout_s=30)
        server.stop()

    threading.Thread(target=stop, daemon=True).start()
    started = time.monotonic()
    code, out, err = command("run", "--store", url, "--run", run_id, "--patience", "1", "--json")

    assert code == 1
    assert json.loads(out)["done"] == 1
    assert "error: could not claim work for 1 s, giving up" in err
    assert "Traceback" not in err
    assert time.monotonic() - started < 30


# --- who works ----------------------------------------------------------------------------------


def test_workers_are_listed_with_what_they_did(command, trainers):
    run_id = trainers.make()
    rollout_ids = trainers.enqueue(run_id, "a", "raises")
    trainers.close_when_done(run_id, rollout_ids)
    command("run", "--store", trainers.url, "--run", run_id, "--agent", "cli_agents:agent")
    (late,) = trainers.store.workers()
    trainers.store.heartbeat(
        "elsewhere-7", [], {"host": "elsewhere", "stale": 2, "late": {"llm call": 3}}
    )

    code, out, _ = command("workers", "--store", trainers.url)
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if "│" in line}

    assert code == 0
    assert [cell.strip() for cell in rows[late.worker_id].split("│")[3:7]] == ["0", "now", "1", "1"]
    assert "late results 2, late llm call 3" in rows["elsewhere-7"]

    code, out, _ = command("workers", "--store", trainers.url, "--json")
    assert {worker["worker_id"] for worker in json.loads(out)["workers"]} == set(rows)
