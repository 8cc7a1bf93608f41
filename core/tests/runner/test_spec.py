import os
import pickle
import sys
import threading

import pytest
from agentlightning.errors import AgentError, ConfigError
from agentlightning.executors.threads import ThreadExecutor
from agentlightning.recording import seam
from agentlightning.runner import RunnerSpec, RunSettings


@pytest.fixture
def module(tmp_path):
    """A folder with an agent that needs a key to be imported; it is not on ``sys.path``."""
    text = "import os\nKEY = os.environ['OPENAI_API_KEY']\nMODE = os.environ.get('MODE')\n"
    text += "def agent(task): return [KEY, MODE]\n"
    (tmp_path / "spec_agents.py").write_text(text)
    before = list(sys.path)
    yield str(tmp_path)
    sys.path[:] = before
    sys.modules.pop("spec_agents", None)


def work(bench, spec, *tasks, count=2):
    rollout_ids = bench.enqueue(*tasks)
    executor = ThreadExecutor()
    thread = threading.Thread(target=executor.run, args=(spec.using(bench.store), count))
    thread.start()
    try:
        return bench.finished(rollout_ids)
    finally:
        executor.stop(5)
        thread.join(5)


def test_the_process_is_prepared_before_the_agent_is_imported(bench, module, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "")  # as good as unset, and put back afterwards
    monkeypatch.setenv("MODE", "before")
    spec = RunnerSpec(
        "memory://",
        bench.run.run_id,
        "spec_agents:agent",
        serves_model=True,
        environment={"MODE": "set"},
        path=(module,),
    )

    (rollout,) = work(bench, spec, "task")

    assert rollout.output == ["served-by-agentlightning", "set"]
    assert (os.environ["OPENAI_API_KEY"], os.environ["MODE"]) == ("", "before")


def test_variables_that_were_not_set_are_gone_when_the_last_worker_is(bench, monkeypatch):
    for name in ("OPENAI_API_KEY", "MODE"):
        monkeypatch.delenv(name, raising=False)
    given = {"serves_model": True, "environment": {"MODE": "set"}}
    seen = []

    def agent(task):
        seen.append((os.environ["OPENAI_API_KEY"], os.environ["MODE"]))

    work(bench, RunnerSpec("memory://", bench.run.run_id, agent, **given), *"abcd", count=3)

    assert seen == [("served-by-agentlightning", "set")] * 4
    assert "OPENAI_API_KEY" not in os.environ
    assert "MODE" not in os.environ


def test_runs_at_once_share_the_key_until_the_last_has_ended(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    first, second = (RunnerSpec("memory://", None, serves_model=True).prepared() for _ in range(2))
    with first:
        second.__enter__()
    assert os.environ["OPENAI_API_KEY"] == "served-by-agentlightning"
    second.__exit__(None, None, None)
    assert "OPENAI_API_KEY" not in os.environ


def test_a_key_that_the_agent_sets_stays(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MODE", "before")
    with RunnerSpec("x", None, serves_model=True, environment={"MODE": "set"}).prepared():
        monkeypatch.setenv("OPENAI_API_KEY", "found in a vault")
        monkeypatch.setenv("MODE", "changed")
    assert (os.environ["OPENAI_API_KEY"], os.environ["MODE"]) == ("found in a vault", "changed")


def test_a_key_that_is_there_stays(bench, module, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    spec = RunnerSpec(
        "memory://", bench.run.run_id, "spec_agents:agent", serves_model=True, path=(module,)
    )

    assert work(bench, spec, "task")[0].output[0] == "mine"
    assert os.environ["OPENAI_API_KEY"] == "mine"


def test_the_threads_share_a_runner_and_leave_everything_as_it_was(bench):
    import openai

    request = openai._base_client.SyncAPIClient.request
    seen = []

    def agent(task):
        seen.append(openai._base_client.SyncAPIClient.request is not request)
        return task

    work(bench, RunnerSpec("memory://", bench.run.run_id, agent), *"abcd", count=3)

    assert seen == [True] * 4
    assert openai._base_client.SyncAPIClient.request is request
    assert len(bench.store.workers()) == 1
    assert bench.store.runs()


def test_a_spec_is_sent_without_what_lives_here(bench):
    spec = RunnerSpec("sqlite:///x.db", "run", "module:agent", RunSettings(prompts={"a": "b"}))

    assert pickle.loads(pickle.dumps(spec.using(bench.store))) == spec


def test_a_store_in_memory_is_not_sent():
    with pytest.raises(ConfigError, match="lives in one process"):
        pickle.dumps(RunnerSpec("memory://", "run", "module:agent"))


def test_an_agent_that_is_none_ends_the_executor_with_its_reason(bench):
    spec = RunnerSpec("memory://", bench.run.run_id, 7).using(bench.store)

    with pytest.raises(AgentError, match="is no agent"):
        ThreadExecutor().run(spec, 3)
    assert seam._seam._installs == 0


def test_a_spec_that_was_stopped_does_not_begin(bench):
    spec = RunnerSpec("memory://", bench.run.run_id, lambda task: task).using(bench.store)
    spec.stop(1)

    ThreadExecutor().run(spec, 2)

    assert bench.store.workers() == []


def test_a_stop_while_the_agent_is_being_imported_is_heard(bench, tmp_path, monkeypatch):
    (tmp_path / "slow_agents.py").write_text("import time; time.sleep(0.5)\ndef agent(task): ...\n")
    spec = RunnerSpec("memory://", bench.run.run_id, "slow_agents:agent", path=(str(tmp_path),))
    monkeypatch.syspath_prepend(tmp_path)
    executor = ThreadExecutor()
    thread = threading.Thread(target=executor.run, args=(spec.using(bench.store), 2))
    thread.start()
    threading.Event().wait(0.2)

    executor.stop(5)
    thread.join(5)

    assert not thread.is_alive()


def test_a_spec_can_be_checked_before_there_is_a_run(module, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    given = {"store": "sqlite:///x.db", "run_id": None, "path": (module,)}

    RunnerSpec(agent="spec_agents:agent", serves_model=True, **given).check({})

    with pytest.raises(AgentError, match="has no 'agnet', did you mean 'agent'"):
        RunnerSpec(agent="spec_agents:agnet", serves_model=True, **given).check({})
    with pytest.raises(AgentError, match="nothing fits the parameter 'wether'"):
        RunnerSpec(agent=lambda task, wether: task, **given).check({})
    RunnerSpec(agent=lambda task, wether: task, **given).check()
    assert seam._seam._installs == 0
