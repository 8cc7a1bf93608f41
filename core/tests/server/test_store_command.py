"""``agl store``: a process that serves a store, and the tokens it is used with."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agentlightning.store.http.client import HttpStore
from agentlightning.store.opening import open_store
from agentlightning.testing.store.making import request

AGL = [sys.executable, "-c", "from agentlightning.cli import main; main()"]


class Process:
    """``agl store serve`` as a user starts it."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*AGL, "store", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def facts(self) -> dict[str, str]:
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def end(self, sent: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(sent)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.fixture
def serve() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process(*arguments))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def agl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AGL, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment or None,
    )


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def is_free(url: str) -> bool:
    try:
        socket.create_connection(address_of(url), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def health(url: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(*address_of(url), timeout=5)
    connection.request("GET", "/health")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_it_serves_until_it_is_told_to_stop_and_leaves_nothing(serve, url, sent, code):
    process = serve("--store", url, "--json")
    facts = process.facts()
    assert facts["url"].startswith("http://127.0.0.1:")
    assert health(facts["url"])["instance"] == facts["instance"]
    with HttpStore(facts["url"], token=facts["owner_token"]) as store:
        run_id = store.create_run("a", {}).run_id
    returned, errors = process.end(sent)
    assert returned == code
    assert "Traceback" not in errors
    assert is_free(facts["url"])
    with open_store(url) as store:
        assert [run.run_id for run in store.runs()] == [run_id]
        assert store.access_token("owner") == facts["owner_token"]
        assert store.access_token("runner") == facts["runner_token"]


def test_it_ends_with_claims_waiting(serve):
    process = serve("--store", "memory://", "--json")
    facts = process.facts()
    host, port = address_of(facts["url"])
    connection = http.client.HTTPConnection(host, port, timeout=30)
    body = json.dumps({"worker_id": "w", "wait_s": 30})
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {facts['runner_token']}",
    }
    connection.request("POST", "/store/v1/claim", body, headers)
    time.sleep(0.3)
    started = time.monotonic()
    assert process.end(signal.SIGINT)[0] == 130
    assert time.monotonic() - started < 5
    assert json.loads(connection.getresponse().read()) == {"claims": [], "run_is_open": True}
    connection.close()


def test_people_are_told_the_address_the_tokens_and_how_to_run_an_agent(serve, url):
    process = serve("--store", url)
    lines = [process.process.stdout.readline() for _ in range(7)]
    text = "".join(lines)
    process.end(signal.SIGINT)
    with open_store(url) as store:
        assert store.access_token("owner") in text
        runner = f"AGENTLIGHTNING_STORE_TOKEN={store.access_token('runner')} agl run --store http://127"
        assert runner in text


def test_a_second_server_on_the_port_fails_at_once_and_the_first_keeps_its_rollout(
    serve, url, tmp_path
):
    first = serve("--store", url, "--json").facts()
    with HttpStore(first["url"], token=first["owner_token"]) as store:
        run_id = store.create_run("a", {}).run_id
        store.enqueue(run_id, [request()])
        port = address_of(first["url"])[1]
        second = serve("--store", f"sqlite:///{tmp_path}/other.db", "--port", str(port), "--json")
        _, errors = second.process.communicate(timeout=30)
        assert second.process.returncode == 1
        assert f"port {port}" in errors
        assert "Traceback" not in errors
        assert store.statistics(run_id).rollouts["queued"] == 1
    assert health(first["url"])["instance"] == first["instance"]


def test_a_server_on_a_named_port_can_be_started_again_there(serve, url):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    first = serve("--store", url, "--port", port, "--json")
    facts = first.facts()
    with HttpStore(facts["url"], token=facts["owner_token"]) as store:
        run_id = store.create_run("a", {}).run_id
        first.end(signal.SIGINT)
        again = serve("--store", url, "--port", port, "--json").facts()
        assert again["url"] == facts["url"]
        assert store.run(run_id).run_id == run_id  # with the token of before


def test_a_limit_on_requests_can_be_set(serve):
    facts = serve("--store", "memory://", "--max-body-mb", "1", "--json").facts()
    host, port = address_of(facts["url"])
    connection = http.client.HTTPConnection(host, port, timeout=30)
    headers = {"content-type": "application/json", "authorization": f"Bearer {facts['owner_token']}"}
    connection.request("POST", "/store/v1/runs", b" " * (1024 * 1024 + 1), headers)
    assert connection.getresponse().status == 413
    connection.close()


# --- token --------------------------------------------------------------------------------------


def test_a_token_of_a_file_lets_a_runner_into_the_server_in_front_of_it(serve, url):
    facts = serve("--store", url, "--json").facts()
    with HttpStore(facts["url"], token=facts["owner_token"]) as store:
        mine, other = (store.create_run(name, {}).run_id for name in "ab")
    token = agl("store", "token", "--store", url, "--run", mine).stdout.strip()
    over_http = agl(
        *("store", "token", "--store", facts["url"], "--run", mine, "--json"),
        AGENTLIGHTNING_STORE_TOKEN=facts["owner_token"],
    )
    assert json.loads(over_http.stdout) == {"token": token, "run_id": mine}
    with HttpStore(facts["url"], token=token) as runner:
        assert runner.run(mine).run_id == mine
        with pytest.raises(Exception, match=other):
            runner.run(other)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "memory://"), "memory"),
        (("--store", "sqlite:///not-there.db"), "not-there.db"),
        (("--run", "run-unknown"), "run-unknown"),
    ],
)
def test_what_has_no_token_is_one_line_of_error(url, arguments, said):
    open_store(url).close()
    done = agl("store", "token", "--store", url, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
