"""What is found wrong before a store is opened."""

from __future__ import annotations

import agentlightning as agl
import pytest
from agentlightning.algorithm import Algorithm
from agentlightning.config import load_config
from agentlightning.errors import AgentError, ConfigError, DatasetError
from agentlightning.plugins import plugins
from agentlightning.trainer import Trainer
from agentlightning.trainer.preflight import check_run


class Served(Algorithm):
    """Serves the model and learns from rewards, as far as a check can tell."""

    class Config(agl.records.base.Part, kw_only=True):
        allowed: bool = True

        @property
        def serves(self):
            return ("llm",)

        @property
        def needs_rewards(self):
            return True

    def check(self, config, train, val):
        if not self.config.allowed:
            raise ConfigError(f"allowed: not with {len(train)} tasks")

    def run(self, ctx):
        raise AssertionError("it was not to be run")


class Engine:
    def __init__(self, model, size=1):
        if size < 1:
            raise ValueError(f"size is {size}; expected at least 1")


@pytest.fixture(autouse=True)
def offers(tmp_path, monkeypatch):
    """An algorithm and an engine, as a program adds them, and an empty folder."""
    plugins().algorithms.add("served", Served, summary="for these tests", config=Served.Config)
    plugins().engines.add("tested", Engine, summary="for these tests")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(agent=None, train=({"prompt": "1+1="},), val=(), **keys):
    config = load_config({"algorithm": "served", "model": "owner/name", "engine": "tested", **keys})
    config.agent = agent
    check_run(config, train, val)


def test_what_can_be_run_is_let_through():
    check()
    check(lambda task, llm, hint, resources: task, resources={"hint": "think"})
    check(
        engine={"name": "tested", "size": 2},
        runners={"executor": {"name": "processes", "processes": 1}},
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"engine": {"name": "tested", "sise": 2}},
            "engine.sise: no option of tested; did you mean 'size'?",
        ),
        (
            {"engine": {"name": "tested", "size": 0}},
            "engine: tested does not take these options: size is 0",
        ),
        ({"runners": {"executor": {"name": "threads", "n": 1}}}, "no option of threads; known: none"),
        ({"allowed": False}, "allowed: not with 1 tasks"),
    ],
)
def test_options_and_the_algorithms_own_check_are_told_by_their_key(keys, expected):
    with pytest.raises(ConfigError) as refusal:
        check(**keys)
    assert expected in str(refusal.value)


def test_rows_that_the_built_in_agent_cannot_ask_are_named():
    with pytest.raises(DatasetError, match="eval_dataset row 1: the built-in agent needs"):
        check(val=[{"question": "1+1="}, {"text": "1+1="}])


def test_an_agent_by_name_is_imported_only_where_workers_do_so_too(offers, monkeypatch):
    (offers / "preflight_agents.py").write_text("raise ValueError('not today')\n")
    monkeypatch.syspath_prepend(str(offers))
    with pytest.raises(AgentError, match="ValueError: not today"):
        check("preflight_agents:agent")
    check("preflight_agents:agent", runners={"executor": "processes"})


def test_a_refused_run_leaves_nothing(offers):
    with pytest.raises(AgentError, match="nothing fits the parameter 'wether'"):
        Trainer(algorithm="served", model="owner/name", engine="tested").fit(
            lambda task, wether: 1.0, [{"prompt": "1+1="}]
        )
    assert list(offers.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: 1.0, "expected f(task, output)"),
        (lambda a, b, c, d: 1.0, "expected f(task, output)"),
        ("nowhere", "expected 'module:name'"),
        ("no_such_module:score", "there is no module 'no_such_module'"),
        ("math:pi", "got a float; expected a callable"),
    ],
)
def test_a_reward_function_that_cannot_be_called_is_named_with_its_key(function, expected):
    with pytest.raises(ConfigError) as refusal:
        Trainer(
            algorithm="served", model="owner/name", engine="tested", reward_function=function
        ).train([{"prompt": "1+1="}])
    assert str(refusal.value).startswith("reward_function: ")
    assert expected in str(refusal.value)
