"""Agents in JavaScript, on the official packages of OpenAI and Anthropic, recorded without a patch.

``nox -s clients`` installs the packages and runs these.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
from agentlightning.testing import Fault, Turn

HERE = Path(__file__).parent
NODE = shutil.which("node")
SCRIPT = '[[tool:add:{"a": 1};;tool:add:{"a": 2};;say:done]]'

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (HERE / "node_modules").is_dir(),
        reason="the npm packages are not installed: nox -s clients",
    ),
]


def run_agent(served, script: str, how: str, task: str, *, token: str | None = None) -> str:
    """What an agent returned; ended if it takes too long."""
    token = token or served.claim.token
    environment = {
        "PATH": os.environ["PATH"],
        "MODEL": "policy",
        "OPENAI_BASE_URL": served.base_url,
        "OPENAI_API_KEY": token,
        "ANTHROPIC_BASE_URL": served.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": token,
    }
    done = subprocess.run(
        [NODE, str(HERE / script), how, task],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["output"]


AGENTS = [
    ("openai_agent.mjs", "chat", "chat"),
    ("openai_agent.mjs", "chat-stream", "chat"),
    ("openai_agent.mjs", "responses", "responses"),
    ("openai_agent.mjs", "responses-stream", "responses"),
    ("anthropic_agent.mjs", "messages", "messages"),
    ("anthropic_agent.mjs", "messages-stream", "messages"),
]


@pytest.mark.parametrize(("script", "how", "api"), AGENTS, ids=[how for _, how, _ in AGENTS])
def test_an_agent_with_tools_is_recorded_turn_by_turn(served, script: str, how: str, api: str):
    assert run_agent(served, script, how, SCRIPT) == "done"
    calls = served.calls()
    assert [(call.api, call.complete, call.streamed) for call in calls] == [
        (api, True, how.endswith("-stream"))
    ] * 3
    assert [call.seq for call in calls] == [1, 2, 3]
    for call, following in pairwise(calls):
        told = [*call.prompt_ids, *call.choices[0].response_ids]
        assert list(following.prompt_ids)[: len(told)] == told


@pytest.mark.parametrize("how", ["completions", "completions-stream"])
def test_completions_are_recorded_with_their_tokens(served, how: str):
    assert run_agent(served, "openai_agent.mjs", how, "[[say:some text]]") == "some text"
    (call,) = served.calls()
    assert (call.api, call.complete) == ("completions", True)
    assert bytes(call.choices[0].response_ids).decode() == "some text"


@pytest.mark.parametrize(
    ("script", "api"), [("openai_agent.mjs", "chat"), ("anthropic_agent.mjs", "messages")]
)
def test_the_clients_own_retries_are_one_turn(served, script: str, api: str):
    faults = iter([Fault(status=503), Fault(lost=True)])
    served.model.reply = lambda _: next(faults, None)
    how = "messages" if api == "messages" else "chat"
    assert run_agent(served, script, how, "hi") == "ok"
    calls = served.calls()
    assert [(call.seq, call.complete) for call in calls] == [(1, False), (1, False), (1, True)]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("openai_agent.mjs", "AuthenticationError 401"),
        ("anthropic_agent.mjs", "AuthenticationError 401"),
    ],
)
def test_a_refusal_is_the_clients_own_error(served, script: str, error: str):
    told = run_agent(served, script, "fail", "hi", token="wrong")
    assert told.startswith(error)
    assert "wrong or missing token" in told
    assert served.model.requests == []


def test_a_stream_that_is_left_is_one_incomplete_call(served):
    said = Turn(text="a long text " * 40)
    served.model.reply = lambda _: Fault(turn=said, piece_s=0.02)
    assert run_agent(served, "openai_agent.mjs", "leave", "hi") == "left"
    deadline = time.monotonic() + 10
    while not (calls := served.calls()) and time.monotonic() < deadline:
        time.sleep(0.02)
    (call,) = calls
    assert not call.complete
    assert "client left" in call.error
    assert served.endpoint.report()["client_left"] == 1
