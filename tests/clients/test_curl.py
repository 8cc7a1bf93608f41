"""Calls by curl, the least a client can be: recorded like any other."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

CURL = shutil.which("curl")
HI = [{"role": "user", "content": "[[say:hello]]"}]

pytestmark = pytest.mark.skipif(CURL is None, reason="curl is not installed")


def curl(served, path: str, body: dict | None = None, *options: str, header: str | None = None) -> str:
    header = header or f"authorization: Bearer {served.claim.token}"
    sent = [] if body is None else ["--data", json.dumps(body)]
    command = [CURL, "--silent", "--show-error", "--max-time", "30", "--noproxy", "*", "-H", header]
    done = subprocess.run(
        [
            *command,
            "-H",
            "content-type: application/json",
            *sent,
            *options,
            f"{served.base_url}/{path}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("path", "body", "api"),
    [
        ("chat/completions", {"messages": HI}, "chat"),
        ("completions", {"prompt": "[[say:hello]]"}, "completions"),
        ("responses", {"input": HI}, "responses"),
        ("messages", {"messages": HI, "max_tokens": 9}, "messages"),
    ],
)
def test_every_protocol_is_answered_and_recorded(served, path: str, body: dict, api: str):
    body = {"model": "policy", **body}
    assert "hello" in curl(served, path, body)
    streamed = curl(served, path, {**body, "stream": True}, "--no-buffer")
    assert streamed.count("data: ") > 2
    calls = served.calls()
    assert [(call.api, call.complete, call.streamed) for call in calls] == [
        (api, True, False),
        (api, True, True),
    ]
    assert calls[0].prompt_ids == calls[1].prompt_ids
    assert calls[0].choices[0].response_ids == calls[1].choices[0].response_ids


def test_the_token_may_come_as_anthropics_key(served):
    body = {"model": "policy", "messages": HI, "max_tokens": 9}
    reply = curl(served, "messages", body, header=f"x-api-key: {served.claim.token}")
    assert json.loads(reply)["content"] == [{"type": "text", "text": "hello"}]


def test_a_refusal_says_what_to_do(served):
    reply = curl(served, "models", header="authorization: Bearer wrong")
    assert "wrong or missing token for attempt 1" in json.loads(reply)["error"]["message"]
    assert [model["id"] for model in json.loads(curl(served, "models"))["data"]] == ["m"]
