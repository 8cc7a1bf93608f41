"""``agl explain`` for agents of which nothing can be trained on: it says why, and what to do."""

from __future__ import annotations

import sys

import agentlightning as agl
import openai
import pytest
from agentlightning.cli import main
from agentlightning.testing.model_server import ModelServer


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
def explained(monkeypatch, capsys, store):
    """What ``agl explain`` prints of a rollout, in one line."""

    def run(rollout_id):
        monkeypatch.setattr(sys, "argv", ["agl", "explain", rollout_id, "--store", store])
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code
        return " ".join(capsys.readouterr().out.split())

    return run


def test_an_agent_without_llm_calls(store, explained):
    with agl.Tracer(store).trace("helper") as trace:
        agl.emit_message("thinking")
    told = explained(trace.rollout_id)
    assert "0 training rows" in told
    assert "no LLM call was recorded" in told
    assert "openai client" in told


def test_an_agent_whose_calls_were_left_alone(store, explained):
    with ModelServer() as server, agl.Tracer(store).trace("helper") as trace:
        client = openai.OpenAI(base_url=server.url, api_key="unused")
        for _ in range(2):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    told = explained(trace.rollout_id)
    assert "call 1 (m): dropped: the model server returned no token ids" in told
    assert f"2 calls to {server.url} were left alone on purpose: recorded by a Tracer" in told
