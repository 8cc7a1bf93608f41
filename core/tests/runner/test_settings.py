"""How a run wants its agent run: kept with it, read with each claim."""

import threading

import pytest
from agentlightning import semconv
from agentlightning.adapter import TracerAdapter
from agentlightning.agent import Result
from agentlightning.errors import AgentError, PluginError
from agentlightning.executors.threads import ThreadExecutor
from agentlightning.plugins import plugins
from agentlightning.records import LLM, PromptTemplate, RolloutRequest
from agentlightning.runner import KEPT_AS, RunnerSpec, RunSettings, settings_of
from agentlightning.store.waiting import wait
from openai import OpenAI


class Runs:
    """Runs of one store, each with settings of its own."""

    def __init__(self, store):
        self.store = store

    def make(self, resources=(), **settings):
        run = self.store.create_run("run", {KEPT_AS: settings} if settings else {})
        self.store.publish(run.run_id, dict(resources))
        return run

    def enqueue(self, run, *tasks):
        requests = [RolloutRequest(input=task) for task in tasks]
        return [item.rollout_id for item in self.store.enqueue(run.run_id, requests)]

    def work(self, agent, rollout_ids, *, run_id=None, count=2, **spec):
        """Run the agent on these rollouts, of whatever runs."""
        executor = ThreadExecutor()
        spec = RunnerSpec("memory://", run_id, agent, **spec).using(self.store)
        thread = threading.Thread(target=executor.run, args=(spec, count))
        thread.start()
        try:
            return wait(self.store, rollout_ids, timeout_s=10)
        finally:
            executor.stop(5)
            thread.join(5)

    def rewards(self, rollout):
        spans = self.store.spans([rollout.rollout_id], kinds=["reward"])
        return [span.attributes[semconv.REWARD_VALUE] for span in spans]

    def error(self, rollout):
        return self.store.attempts(rollout.rollout_id)[0].error


@pytest.fixture
def runs(memory_store):
    return Runs(memory_store)


def test_one_runner_serves_runs_that_score_in_different_ways(runs):
    scored, unscored = runs.make(has_reward_function=True), runs.make()
    rollout_ids = [*runs.enqueue(scored, 0.5), *runs.enqueue(unscored, 0.5)]

    first, second = runs.work(lambda task: Result(task, reward=task), rollout_ids)

    assert (runs.rewards(first), runs.rewards(second)) == ([], [0.5])


def test_one_runner_serves_runs_that_train_different_agents(runs, model_server):
    resources = {
        "llm": LLM(model="tiny", base_url=model_server.url),
        "manners": PromptTemplate(template="Be polite."),
    }
    everything = runs.make(resources)
    prompted = runs.make(resources, prompts={"manners": "clerk"})
    nobody = runs.make(resources, trained_agents=["somebody"])

    def agent(task):
        client = OpenAI(base_url=model_server.url, api_key="none")
        ask = [{"role": "user", "content": task}]
        client.chat.completions.create(model="gpt-4", messages=ask)

    runs.work(agent, [
        *runs.enqueue(everything, "a"), *runs.enqueue(prompted, "b"), *runs.enqueue(nobody, "c")
    ])  # fmt: skip

    models = {r.body["messages"][-1]["content"]: r.body["model"] for r in model_server.requests}
    assert models == {"a": "tiny", "b": "gpt-4", "c": "gpt-4"}


def test_a_strict_run_refuses_calls_that_nobody_routed(runs, model_server):
    def agent(task):
        client = OpenAI(base_url=model_server.url, api_key="none", max_retries=0)
        ask = [{"role": "user", "content": task}]
        client.chat.completions.create(model="unknown", messages=ask)

    models = {name: LLM(model=name, base_url=model_server.url) for name in ("one", "two")}
    strict, lenient = runs.make(models, strict=True), runs.make(models)
    rollout_ids = [*runs.enqueue(strict, "a"), *runs.enqueue(lenient, "b")]

    first, second = runs.work(agent, rollout_ids)

    assert (first.status, second.status) == ("failed", "succeeded")
    assert "UnroutedCall" in runs.error(first)


class Noting(TracerAdapter):
    """Notes how often it is in place, and with which options."""

    capabilities = frozenset()
    made = []

    def __init__(self, colour="none"):
        self.colour = colour
        self.made.append(self)
        self.installed = 0

    def install(self, recorder):
        self.installed += 1

    def uninstall(self):
        self.installed -= 1

    def bind(self, agent):
        return None


@pytest.fixture
def noting():
    plugins().adapters.add("noting", Noting, summary="for these tests", trigger="decimal")
    Noting.made.clear()
    return Noting


def test_the_adapters_of_the_run_get_their_options_before_the_agent_is_there(runs, noting):
    run = runs.make(adapters={"noting": {"colour": "blue"}})
    colours = []

    def agent(task):
        colours.extend(adapter.colour for adapter in noting.made)

    runs.work(agent, runs.enqueue(run, "task"), run_id=run.run_id)

    assert colours == ["blue"]
    assert [adapter.installed for adapter in noting.made] == [0]


def test_an_adapter_that_is_not_here_ends_the_runner_of_its_run_only(runs, noting):
    missing = runs.make(adapters={"no-such-adapter": {}})
    other = runs.make()
    rollout_ids = [*runs.enqueue(missing, 1), *runs.enqueue(other, 2)]

    first, second = runs.work(lambda task: task, rollout_ids)

    assert (first.status, second.status) == ("failed", "succeeded")
    assert "no-such-adapter" in runs.error(first)
    with pytest.raises(PluginError, match="no-such-adapter"):
        ThreadExecutor().run(
            RunnerSpec("memory://", missing.run_id, lambda task: task).using(runs.store), 1
        )


def test_settings_that_cannot_be_read_fail_the_rollout_with_the_reason(runs):
    run = runs.store.create_run("newer", {KEPT_AS: {"strict": "very"}})
    runs.store.publish(run.run_id, {})

    (rollout,) = runs.work(lambda task: task, runs.enqueue(run, "task"))

    assert "strict" in runs.error(rollout)
    with pytest.raises(AgentError, match="cannot be read"):
        settings_of(run)


def test_a_variable_that_the_run_sets_and_nobody_else_is_warned_about(runs, monkeypatch, caplog):
    monkeypatch.delenv("DESK_MODE", raising=False)
    run = runs.make(variables=["DESK_MODE", "HOME"])

    runs.work(lambda task: task, runs.enqueue(run, "a", "b"))
    assert caplog.text.count("DESK_MODE, not set here") == 1
    assert "HOME" not in caplog.text

    caplog.clear()
    runs.work(lambda task: task, runs.enqueue(run, "c"), environment={"DESK_MODE": "fast"})
    assert "DESK_MODE" not in caplog.text


def test_a_run_that_nobody_configured_has_the_defaults(runs):
    assert settings_of(runs.make()) == RunSettings()
    assert settings_of(runs.store.create_run("odd", "a text")) == RunSettings()
