"""The demo's agent trained over other stores: a PostgreSQL server, and a server with runners elsewhere.

Two steps of an untrained policy, so that everything is recorded, scored and trained on as in the demo.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import agentlightning as agl
import psutil
import pytest
import yaml
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store
from agentlightning.testing.postgres import PostgresServer

from tests.end_to_end.conftest import EXAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DEMO = EXAMPLES / "langchain_tool_agent"
AGL = str(Path(sys.executable).with_name("agl"))
STEPS, BATCH, GROUP, TASKS, VALIDATED = 2, 16, 4, 8, 4
RUNNER_S = 60.0


@pytest.fixture(scope="module")
def demo():
    """The modules of the example, importable as its script imports them."""
    sys.path.insert(0, str(DEMO))
    try:
        yield {name: importlib.import_module(name) for name in ("policy", "shop", "traces")}
    finally:
        sys.path.remove(str(DEMO))


@pytest.fixture(scope="module")
def untrained(demo, tmp_path_factory):
    """The demo's policy before anything was learnt."""
    examples = demo["traces"].traces(seed=0)
    return str(demo["policy"].build(tmp_path_factory.mktemp("base"), examples))


@pytest.fixture
def train(demo, untrained, tmp_path, monkeypatch):
    """Train the demo's agent for two steps over a store."""
    monkeypatch.setenv("OPENAI_API_KEY", "")
    config = yaml.safe_load((DEMO / "config.yaml").read_text())
    config |= {"steps": STEPS, "batch_size": BATCH, "group_size": GROUP, "max_new_tokens": 16}
    config["engine"] |= {"max_batch": 16, "max_new_tokens": 16}
    tasks, val = demo["shop"].tasks(seed=0)

    def run(store, runners, **keys):
        config["runners"]["count"] = runners
        return agl.Trainer(
            config, model=untrained, run_dir=str(tmp_path / "run"), store=store, **keys
        ).fit(train=tasks[:TASKS], val=val[:VALIDATED])

    return run


def check_the_record(store, run_id):
    """Every rollout is there once, scored, with exact tokens in every call."""
    assert store.run(run_id).status == "succeeded"
    rollouts = store.rollouts(RolloutQuery(run_id=run_id)).items
    modes = [rollout.mode for rollout in rollouts]
    assert modes.count("train") == STEPS * BATCH
    assert modes.count("val") == 2 * VALIDATED
    assert {rollout.status for rollout in rollouts} == {"succeeded"}
    assert all(rollout.reward is not None for rollout in rollouts)
    spans = list(store.spans([rollout.rollout_id for rollout in rollouts]))
    calls = [span.call for span in spans if span.call]
    assert {span.rollout_id for span in spans if span.call} == {r.rollout_id for r in rollouts}
    for call in calls:
        (choice,) = call.choices
        assert call.agent == "order_desk"
        assert call.usage["prompt_tokens"] == len(call.prompt_ids)
        assert call.usage["completion_tokens"] == len(choice.response_ids) == len(choice.logprobs)
    steps = {m.step: m.values for m in store.metrics(run_id) if "train/loss" in m.values}
    assert list(steps) == list(range(1, STEPS + 1))
    assert {values["fidelity/dropped"] for values in steps.values()} == {0}
    assert len({call.model_version for call in calls}) > 1


def children():
    return set(psutil.Process().children(recursive=True))


def test_the_agent_is_trained_over_postgresql(train):
    before = children()
    server = PostgresServer()
    url = server.start()
    try:
        result = train(url, 16)
        with open_store(url) as store:
            check_the_record(store, result.run_id)
            assert len(store.workers()) == 2
    finally:
        server.stop()
    assert children() <= before
    kept = json.loads((result.run_dir / "summary.json").read_text())
    assert kept["trouble"] == {}


# --- runners elsewhere --------------------------------------------------------------------------


class Program:
    """A command of ours in a process of its own."""

    def __init__(self, *arguments, token=None, cwd=DEMO):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("AGENTLIGHTNING_STORE_TOKEN", None)
        if token is not None:
            environment["AGENTLIGHTNING_STORE_TOKEN"] = token
        self.process = subprocess.Popen(
            [AGL, *arguments],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, timeout_s):
        """Exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def kill(self):
        self.process.kill()
        self.process.communicate()


@contextmanager
def served(url):
    """A store behind ``agl store serve``; gives what the server says of itself."""
    server = Program("store", "serve", "--store", url, "--json")
    try:
        facts = json.loads(server.process.stdout.readline())
        yield facts
        server.process.terminate()
        assert server.ended(10)[0] == 0
    finally:
        server.kill()
    assert is_free(facts["url"])


def is_free(url):
    address = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((address.hostname, address.port)) != 0


class Elsewhere:
    """Two runners that are started as soon as the store has the run."""

    def __init__(self, store, token):
        self._store = store
        self._token = token
        self.runners = []
        self.endpoints = []
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self):
        deadline = time.monotonic() + RUNNER_S
        while not (runs := self._store.runs()) or not runs[-1].endpoint_url:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        self.endpoints.append(runs[-1].endpoint_url)
        command = ["run", "--store", self._store.url, "--run", runs[-1].run_id, "--workers", "8"]
        for executor in ("threads", "processes"):
            options = ["--executor", executor, "--agent", "agent:agent", "--json"]
            self.runners.append(Program(*command, *options, token=self._token))

    def ended(self):
        """Exit code and counts of each."""
        self._thread.join(RUNNER_S)
        endings = [runner.ended(20) for runner in self.runners]
        return [(code, json.loads(out or "{}"), err) for code, out, err in endings]

    def kill(self):
        self._thread.join(RUNNER_S)
        for runner in self.runners:
            runner.kill()


def test_two_runners_elsewhere_run_the_agent_over_http(train, tmp_path, monkeypatch):
    before = children()
    with served(f"sqlite:///{tmp_path}/shared.db") as facts:
        monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", facts["owner_token"])
        with open_store(facts["url"]) as store:
            elsewhere = Elsewhere(store, facts["runner_token"])
            try:
                result = train(facts["url"], 0)
                endings = elsewhere.ended()
            finally:
                elsewhere.kill()
            check_the_record(store, result.run_id)
            done = [worker.report["returned"] for worker in store.workers()]
    for code, counts, err in endings:
        assert code == 0, err
        assert counts["done"] > 0
        assert counts["failed"] == counts["late_results"] == 0
        assert "Traceback" not in err
    assert sum(counts["done"] for _, counts, _ in endings) == sum(done) == STEPS * BATCH + 2 * VALIDATED
    assert all(is_free(endpoint) for endpoint in elsewhere.endpoints)
    assert children() <= before
