"""The plug-in as its users meet it: found, recording, and out of the way when it is taken off."""

import subprocess
import sys

import agentlightning as agl
import echo_agents
import pytest
from agentlightning.plugins import plugins


def shout(task):
    return task.upper()


def broken(task):
    raise ValueError("no such word")


@pytest.fixture
def agent():
    return echo_agents.Agent("parrot", {"shout": shout, "broken": broken})


def test_it_is_found_by_its_name():
    entry = plugins().adapters.entry("echo")
    assert (entry.distribution, entry.facts["trigger"]) == ("agl-echo", "echo_agents")


def test_importing_the_plugin_imports_no_framework():
    program = "import sys, agl_echo; sys.exit('echo_agents' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_agents_and_tools_become_spans(agent, memory_store):
    with agl.Tracer(memory_store).trace(agent, input="shout it") as trace:
        assert agent.run("shout it") == "SHOUT IT"
    spans = {span.span_id: span for span in trace.spans()}
    (tool,) = [span for span in spans.values() if span.kind == "tool"]
    assert (tool.name, tool.attributes["echo.given"]) == ("shout", "shout it")
    parent = spans[tool.parent_id]
    assert (parent.kind, parent.name) == ("agent", "parrot")
    assert spans[parent.parent_id].parent_id is None


def test_what_a_tool_raises_reaches_the_user_and_the_record(agent, memory_store):
    with (
        agl.Tracer(memory_store).trace(agent) as trace,
        pytest.raises(ValueError, match="no such word"),
    ):
        agent.run("broken")
    assert {span.name: span.status for span in trace.spans()}["broken"] == "error"


def test_installing_twice_listens_once_and_uninstalling_leaves_nothing():
    before = list(echo_agents.listeners)
    adapter = plugins().adapters.get("echo")()
    adapter.install(agl.adapter.Recorder())
    adapter.install(agl.adapter.Recorder())
    assert len(echo_agents.listeners) == len(before) + 1
    adapter.uninstall()
    assert echo_agents.listeners == before


def test_an_echo_agent_is_an_agent_as_it_is(agent):
    adapter = plugins().adapters.get("echo")()
    assert adapter.bind(agent)("shout it") == "SHOUT IT"
    assert adapter.bind(object()) is None
