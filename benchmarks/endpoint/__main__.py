"""Measure what the endpoint adds to a call: ``python -m benchmarks.endpoint [--rounds N]``.

Blocks of calls go to the model server itself and through the endpoint in turns: noise hits both. What
the endpoint adds is the median over the rounds of the difference. CPU is that of this process, in which
the endpoint and the client are, less the client's own. Standard output has one JSON object a line.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click
import httpx
import msgspec
from agentlightning.endpoint import Endpoint
from agentlightning.engine import EngineInfo
from agentlightning.recording.sink import Sink
from agentlightning.records import JSON, LLM, RolloutRequest
from agentlightning.server import Server, build_app
from agentlightning.store.memory import MemoryStore

from benchmarks.store.figures import Line, progress

BLOCK = 50
MESSAGES: list[JSON] = [{"role": "user", "content": "what is to be done? " * 50}]
CHAT: dict[str, JSON] = {"model": "bench", "messages": MESSAGES}
CASES: dict[str, tuple[str, dict[str, JSON]]] = {
    "chat": ("chat/completions", CHAT),
    "chat_streamed": ("chat/completions", {**CHAT, "stream": True}),
    "responses": ("responses", {"model": "bench", "input": MESSAGES, "store": False}),
    "responses_streamed": ("responses", {"model": "bench", "input": MESSAGES, "stream": True}),
    "messages": ("messages", {**CHAT, "max_tokens": 128}),
    "messages_streamed": ("messages", {**CHAT, "max_tokens": 128, "stream": True}),
}


class Took(NamedTuple):
    """Milliseconds a call."""

    wall: float
    cpu: float


@click.command()
@click.option("--rounds", default=20, show_default=True, help="Blocks of each kind.")
def main(rounds: int) -> None:
    """Measure the endpoint, one JSON object a line."""
    with model_server() as url, endpoint_before(url) as client, httpx.Client(base_url=url) as direct:
        for case, (path, body) in CASES.items():
            for metric, value in added(client, direct, path, body, rounds).items():
                line = Line(bench="endpoint", case=case, metric=metric, value=value, unit="ms")
                sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
                progress(f"{case:20} {metric:22} {value:8.3f} ms")


def added(
    client: httpx.Client, direct: httpx.Client, path: str, body: dict[str, JSON], rounds: int
) -> dict[str, float]:
    """What the endpoint adds, by the difference of blocks that take turns."""
    bare = {"model": "bench", "messages": MESSAGES, "stream": body.get("stream", False)}
    ours, theirs = [], []
    for _ in range(rounds + 1):
        theirs.append(block(direct, "chat/completions", bare))
        ours.append(block(client, path, body))
    pairs = list(zip(ours, theirs, strict=True))[1:]  # the first opens connections
    return {
        "added_ms_per_call": statistics.median(own.wall - other.wall for own, other in pairs),
        "added_cpu_ms_per_call": statistics.median(own.cpu - other.cpu for own, other in pairs),
        "direct_ms_per_call": statistics.median(other.wall for _, other in pairs),
    }


def block(client: httpx.Client, path: str, body: dict[str, JSON]) -> Took:
    """The time of one call, as the mean over a block of them."""
    content = msgspec.json.encode(body)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(BLOCK):
        client.post(path, content=content).raise_for_status()
    spent = (time.perf_counter() - wall, time.process_time() - cpu)
    return Took(*(1000 * seconds / BLOCK for seconds in spent))


@contextmanager
def endpoint_before(url: str) -> Iterator[httpx.Client]:
    """A client of one attempt whose model is served at ``url``."""
    with MemoryStore() as store:
        sink = Sink(store)
        endpoint = Endpoint(store, sink)
        run = store.create_run("bench", {})
        store.enqueue(run.run_id, [RolloutRequest(input="task")])
        (claim,) = store.claim(run.run_id, "worker")
        endpoint.serve(run.run_id, LLM(model="bench"), EngineInfo(model="bench", base_url=url))
        with Server(build_app(endpoint)) as server:
            base = f"{server.url}/rollout/{claim.key.rollout_id}/attempt/{claim.key.number}/v1"
            headers = {"authorization": f"Bearer {claim.token}"}
            with httpx.Client(base_url=base, headers=headers, timeout=60) as client:
                yield client
        sink.close()


@contextmanager
def model_server() -> Iterator[str]:
    """The URL of a model server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.endpoint.model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101 - it is piped
        yield process.stdout.readline().strip()
        process.communicate("")


if __name__ == "__main__":
    main()
