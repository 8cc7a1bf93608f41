"""Runs without workers of their own, and what they say to whoever starts some."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time

import agentlightning as agl
import pytest
from agentlightning.algorithm import algorithm
from agentlightning.engine import Engine, EngineInfo
from agentlightning.errors import AgentError, ConfigError, Deadline, RunInterrupted
from agentlightning.executors.threads import ThreadExecutor
from agentlightning.runner import RunnerSpec, settings_of
from agentlightning.server import Server, build_app
from agentlightning.store.http import transport
from agentlightning.store.opening import open_store
from agentlightning.trainer import absence, context, elsewhere
from agentlightning.trainer.summary import next_commands

AGENTS = """
def agent(task):
    return {"told": task}

def score(task, output):
    return 1.0 if output == {"told": task} else 0.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder with a module of agents."""
    (tmp_path / "elsewhere_agents.py").write_text(AGENTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def keys(folder):
    """The configuration of a run that runs its agent on every task, and waits for that."""

    @algorithm("wait")
    def ask(ctx):
        """Run the agent on every task."""
        results = ctx.rollouts(ctx.train, key="all").wait()
        ctx.log({"val/reward": sum(result.reward or 0 for result in results) / len(results)}, 0)
        return ctx.resources.resources

    store = f"sqlite:///{folder}/run.db"
    return {"algorithm": "wait", "model": "none/none", "store": store, "runners": 0}


class Helper:
    """Runners that somebody else starts, as soon as there is a run."""

    def __init__(self, store, agent="elsewhere_agents:agent"):
        self._store = store
        self._agent = agent
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _work(self):
        with open_store(self._store) as store:
            while not (runs := store.runs()):
                time.sleep(0.02)
        run_id = runs[-1].run_id
        ThreadExecutor().run(RunnerSpec(self._store, run_id, self._agent), 2)


def kept(keys):
    with open_store(keys["store"]) as store:
        (run,) = store.runs()
        return run


def test_a_run_without_workers_prints_how_to_start_some(keys, capsys):
    with Helper(keys["store"]):
        result = agl.Trainer(keys).fit("elsewhere_agents:agent", ["a", "b"])

    printed = capsys.readouterr().err
    command = f"run --store {keys['store']} --run {result.run_id} --agent elsewhere_agents:agent"
    assert command in printed
    assert "TOKEN" not in printed
    with open_store(keys["store"]) as store:
        assert store.statistics().rollouts["succeeded"] == 2
        assert len(store.workers()) == 1


def test_the_agent_may_be_known_elsewhere_only(keys, capsys):
    with Helper(keys["store"]):
        result = agl.Trainer(keys, reward_function="elsewhere_agents:score").fit(train=["a"])

    assert result.reward_after == 1.0
    assert "--agent MODULE:NAME" in capsys.readouterr().err
    settings = settings_of(kept(keys))
    assert settings.agent is None
    assert settings.has_reward_function


def test_the_built_in_agent_has_a_name_for_others(keys, capsys):
    with Helper(keys["store"]):
        agl.Trainer(keys).train([{"prompt": "1+1=", "answer": "2"}])

    assert "--agent agentlightning.agent" in capsys.readouterr().err


def test_what_workers_need_to_know_is_kept_with_the_run(keys):
    keys |= {
        "runners": {"count": 2, "environment": {"DESK_MODE": "fast"}},
        "trained_agents": ["clerk"],
        "resources": {"manners": "Be polite."},
        "prompts": {"manners": "clerk"},
        "strict": True,
    }
    agl.Trainer(keys).fit("elsewhere_agents:agent", ["a"])

    run = kept(keys)
    settings = settings_of(run)
    assert settings.agent == "elsewhere_agents:agent"
    assert settings.trained_agents == ("clerk",)
    assert settings.prompts == {"manners": "clerk"}
    assert settings.strict
    assert settings.variables == ("DESK_MODE",)
    assert "fast" not in str(run.config)


def test_settings_that_change_when_a_run_goes_on_are_told(keys, capsys):
    keys |= {"runners": 1}
    run_id = agl.Trainer(keys).fit("elsewhere_agents:agent", ["a"]).run_id
    agl.Trainer(keys, resume=run_id).fit("elsewhere_agents:agent", ["a"])
    assert "as the run was started" not in capsys.readouterr().err

    agl.Trainer(keys, resume=run_id, strict=True).fit("elsewhere_agents:agent", ["a"])
    assert "warning: strict: not as the run was started with" in capsys.readouterr().err


@pytest.mark.parametrize("agent", [lambda task: task, threading.Lock()])
def test_an_agent_that_others_could_not_find_is_refused(keys, agent, folder):
    with pytest.raises(AgentError, match="pass it as 'module:name'"):
        agl.Trainer(keys).fit(agent, ["a"])
    assert not (folder / "run.db").exists()


def test_an_agent_that_is_not_here_is_not_asked_for(keys):
    with Helper(keys["store"]):
        agl.Trainer(keys).fit("only_over_there:agent", ["a"])
    assert settings_of(kept(keys)).agent == "only_over_there:agent"


def test_without_an_agent_and_with_workers_there_is_nothing_to_run(keys):
    with pytest.raises(ConfigError, match="agent: none given"):
        agl.Trainer(keys | {"runners": 1}).fit(train=["a"])


def test_a_batch_that_nobody_works_on_says_so_and_what_to_do(keys, monkeypatch, caplog):
    monkeypatch.setattr(context, "STALL_S", 1.5)
    monkeypatch.setattr(elsewhere, "_FIRST_REMINDER_S", 0.1)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(Deadline, match=r"0 running, 0 workers known\); start runners with: .*--agent"),
    ):
        agl.Trainer(keys).fit("elsewhere_agents:agent", ["a", "b"])

    (reminder, *_) = [it.message for it in caplog.records if "no runner works on them" in it.message]
    assert reminder.startswith("2 rollouts are queued")
    assert "run --store" in reminder


def test_others_may_help_the_runs_own_workers(keys, folder, monkeypatch):
    (folder / "mixed_agents.py").write_text(
        "import threading, time\ndef agent(task):\n    time.sleep(0.1)\n    return 1.0\n"
    )
    with Helper(keys["store"], "mixed_agents:agent"):
        agl.Trainer(keys | {"runners": 1}).fit("mixed_agents:agent", list(range(20)))

    with open_store(keys["store"]) as store:
        done = [worker.report["returned"] for worker in store.workers()]
    assert len(done) == 2
    assert sum(done) == 20
    assert min(done) > 0


# --- stores behind a server -------------------------------------------------------------------


@pytest.fixture
def far(keys, monkeypatch):
    """The same run in a store behind a server."""
    with open_store(keys["store"]) as behind, Server(build_app(store=behind)) as server:
        monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", behind.access_token("owner"))
        yield keys | {"store": server.url}


def test_commands_to_go_on_with_can_be_typed_as_they_are():
    (report, *_) = next_commands("run-1", "postgresql://me:***@host/db")
    assert report.endswith("report run-1 --store 'postgresql://me:***@host/db'")


def test_a_store_behind_a_server_is_like_any_other(far, capsys):
    with Helper(far["store"]):
        result = agl.Trainer(far).fit("elsewhere_agents:agent", ["a", "b"])

    printed = capsys.readouterr().err
    assert f"  agl run --store {far['store']} --run {result.run_id}" in printed
    assert f"agl store token --store {far['store']} --run {result.run_id}" in printed
    assert "endpoint.host" in printed


def test_a_run_in_a_store_behind_a_server_goes_on(far):
    far |= {"runners": 2}
    run_id = agl.Trainer(far).fit("elsewhere_agents:agent", ["a", "b"]).run_id
    again = agl.Trainer(far, resume=run_id).fit("elsewhere_agents:agent", ["a", "b"])

    assert again.run_id == run_id
    assert kept(far).status == "succeeded"
    with open_store(far["store"]) as store:
        assert store.statistics().rollouts["succeeded"] == 2


def test_an_interrupted_run_in_a_store_behind_a_server_leaves_nothing_and_goes_on(far):
    stop = [True]

    @algorithm("interrupted")
    def ask(ctx):
        batch = ctx.rollouts(ctx.train, key="all")
        if stop:
            next(iter(batch))
            signal.raise_signal(signal.SIGINT)
        batch.wait()
        return ctx.resources.resources

    far |= {"algorithm": "interrupted", "runners": 1}
    tasks = list(range(30))
    with pytest.raises(RunInterrupted):
        agl.Trainer(far).fit("elsewhere_agents:agent", tasks)
    run = kept(far)
    assert (run.status, run.endpoint_url) == ("cancelled", None)
    with open_store(far["store"]) as store:
        counts = store.statistics().rollouts
    assert counts["queued"] == counts["running"] == 0
    assert counts["succeeded"] + counts["cancelled"] == 30

    stop.clear()
    agl.Trainer(far, resume=run.run_id).fit("elsewhere_agents:agent", tasks)
    with open_store(far["store"]) as store:
        assert store.statistics().rollouts["succeeded"] == 30


@pytest.mark.slow
def test_a_run_waits_for_the_server_of_its_store_to_come_back(keys, monkeypatch):
    away_s = transport.RETRY_S + 1.0
    servers = []

    def serve(port=0):
        servers.append(Server(build_app(store=behind), port=port))
        return servers[-1].start()

    @algorithm("away")
    def go_on_meanwhile(ctx):
        servers[0].stop()
        threading.Timer(away_s, serve, [int(url.rpartition(":")[2])]).start()
        ctx.log({"val/reward": 1.0}, 0)
        return ctx.rollouts(ctx.train).wait() and ctx.resources.resources

    with open_store(keys["store"]) as behind:
        monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", behind.access_token("owner"))
        url = serve()
        try:
            result = agl.Trainer(keys, algorithm="away", store=url, runners=1).fit(
                "elsewhere_agents:agent", ["a"]
            )
        finally:
            servers[-1].stop()

        assert len(servers) == 2
        assert result.reward_after == 1.0
        assert behind.statistics().rollouts["succeeded"] == 1


def test_one_interrupt_ends_a_run_that_waits_for_its_store(keys, monkeypatch):
    @algorithm("interrupted-away")
    def ask(ctx):
        server.stop()
        threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
        ctx.log({"val/reward": 1.0}, 0)

    with open_store(keys["store"]) as behind, Server(build_app(store=behind)) as server:
        monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", behind.access_token("owner"))
        far = keys | {"store": server.url, "algorithm": "interrupted-away"}
        began = time.monotonic()
        with pytest.raises(RunInterrupted):
            agl.Trainer(far, runners=1).fit("elsewhere_agents:agent", ["a"])
        assert time.monotonic() - began < absence.AWAY_S / 2


# --- the endpoint -----------------------------------------------------------------------------


class Silent(Engine):
    """An engine that is never asked."""

    def __init__(self):
        self.stopped = False

    def start(self):
        return EngineInfo(
            base_url="http://127.0.0.1:1/v1",
            model="policy",
            returns_token_ids=True,
            takes_token_ids=False,
            max_model_len=16,
        )

    def load(self, weights, version, *, lora=None):
        return "policy"

    def exclusive(self):
        raise AssertionError("nothing is loaded")

    def stop(self):
        self.stopped = True


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("url", [None, "http://trainer.example:8000/behind"])
def test_the_endpoint_listens_and_is_announced_as_configured(keys, url):
    seen = []

    @algorithm("serve")
    def serve(ctx):
        ctx.serve(Silent())
        announced = ctx.store.run(ctx.run.run_id).endpoint_url
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        seen.append(announced)
        return ctx.resources.resources

    port = free_port()
    agl.Trainer(keys, algorithm="serve", endpoint={"host": "127.0.0.1", "port": port, "url": url}).fit(
        "elsewhere_agents:agent", ["a"]
    )

    assert seen == [url or f"http://127.0.0.1:{port}"]
    assert kept(keys).endpoint_url is None
