import asyncio
import functools
import inspect
import sys

import pytest
from agentlightning.adapter import TracerAdapter
from agentlightning.agent import bind_agent, load_agent, require_module, rollout
from agentlightning.errors import AgentError
from agentlightning.records import RolloutRequest


@pytest.fixture
def claim(memory_store):
    run = memory_store.create_run("test", {})
    memory_store.publish(run.run_id, {})
    memory_store.enqueue(run.run_id, [RolloutRequest(input="task")])
    return memory_store.claim(run.run_id, "w")[0]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported during the test."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        made.append(name)

    yield write
    for name in made:
        sys.modules.pop(name, None)


def run(agent, claim, adapters=()):
    value = bind_agent(agent, adapters)("task", claim)
    return asyncio.run(_await(value)) if inspect.isawaitable(value) else value


async def _await(value):
    return await value


@pytest.mark.parametrize("method", ["invoke", "run", "kickoff"])
def test_an_object_with_a_known_method_is_an_agent(method, claim):
    agent = type("Agent", (), {method: lambda _, task, config=None: (method, task, config)})()

    assert run(agent, claim) == (method, "task", None)


@pytest.mark.parametrize("method", ["ainvoke", "arun", "run"])
def test_its_method_may_be_async(method, claim):
    async def work(self, task):
        return method, task

    assert run(type("Agent", (), {method: work})(), claim) == (method, "task")


def test_a_method_that_takes_the_task_by_keyword_gets_it(claim):
    class Team:
        async def run(self, *, task=None, cancellation_token=None):
            return task, cancellation_token

    assert run(Team(), claim) == ("task", None)


def test_an_async_function_is_known_to_be_one():
    async def agent(task):
        """Async."""

    assert bind_agent(agent).is_async
    assert not bind_agent(functools.partial(len)).is_async


class Framework(TracerAdapter):
    """An adapter of a framework whose agents are numbers."""

    capabilities = frozenset()

    def install(self, recorder): ...

    def uninstall(self): ...

    def bind(self, agent):
        if agent == "broken:agent":
            msg = "boom"
            raise RuntimeError(msg)
        return (lambda task: (agent, task)) if isinstance(agent, int) else None


def test_an_adapter_is_asked_first_and_may_pass(claim):
    assert run(7, claim, [Framework()]) == (7, "task")
    assert run(lambda task: task, claim, [Framework()]) == "task"


def test_a_declared_function_is_not_offered_to_adapters(claim):
    class Greedy(Framework):
        def bind(self, agent):
            return lambda task: "taken"

    assert run(rollout(lambda task: "mine"), claim, [Greedy()]) == "mine"
    assert run(lambda task: "mine", claim, [Greedy()]) == "taken"


def test_an_adapter_that_fails_is_named(module):
    class Broken(Framework):
        def bind(self, agent):
            msg = "boom"
            raise RuntimeError(msg)

    with pytest.raises(AgentError, match=r"adapter Broken failed on 'object'.*boom"):
        bind_agent(object(), [Broken()])


async def agent_function(task):
    return task


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (None, "None is no agent"),
        (7, "'int' .*expected a function of the task"),
        (Framework, "pass an instance"),
    ],
)
def test_what_is_no_agent_is_refused_with_what_would_be(agent, message):
    with pytest.raises(AgentError, match=message):
        bind_agent(agent)


def test_the_result_of_calling_an_async_function_is_no_agent():
    called = agent_function("task")
    with pytest.raises(AgentError, match="pass the function"):
        bind_agent(called)
    called.close()


def test_an_agent_is_imported_by_its_name(module, claim):
    module("desk", "class Shop:\n    @staticmethod\n    def answer(task): return task * 2\n")

    assert run("desk:Shop.answer", claim) == "tasktask"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("desk", "expected 'module:name'"),
        ("desk:", "expected 'module:name'"),
        ("no_such_desk:answer", "no module 'no_such_desk'"),
        ("broken_desk:answer", "importing 'broken_desk' failed: ValueError: not today"),
        ("exiting_desk:answer", "importing 'exiting_desk' failed: SystemExit"),
        ("needy_desk:answer", "importing 'needy_desk' failed: No module named 'no_such_thing'"),
        ("good_desk:reply", "has no 'reply'"),
    ],
)
def test_a_reference_that_leads_nowhere_says_why(reference, message, module):
    module("broken_desk", "raise ValueError('not today')")
    module("exiting_desk", "raise SystemExit(2)")
    module("needy_desk", "import no_such_thing")
    module("good_desk", "def answer(task): return task")

    with pytest.raises(AgentError, match=message):
        load_agent(reference)


def test_a_module_is_looked_for_without_importing_it(module):
    module("broken_desk", "raise ValueError('not today')")

    require_module("broken_desk:answer")

    with pytest.raises(AgentError, match="no module 'no_such_desk'"):
        require_module("no_such_desk.rooms:answer")
    with pytest.raises(AgentError, match="expected 'module:name'"):
        require_module("broken_desk")
