"""Many clients that wait: what they cost while nothing happens, and what one rollout sets off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest
from agentlightning.records import to_json
from agentlightning.store.http import operations as ops
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import request


class CountedStore(MemoryStore):
    """A store that counts how often somebody looks for work."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.looks = 0

    def claim(self, *args, **options):
        self.looks += 1
        return super().claim(*args, **options)


@pytest.fixture
def counted(serve):
    with CountedStore() as store:
        yield serve(store)


@pytest.fixture
def run_id(counted) -> str:
    return counted.store.create_run("crowded", {}).run_id


def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        time.sleep(0.005)


def settled(store: CountedStore) -> int:
    """How many looks there were once no more are made."""
    looks = -1
    while store.looks != looks:
        looks = store.looks
        time.sleep(0.2)
    return looks


def running(served, run_id: str) -> int:
    return served.store.statistics(run_id).rollouts["running"]


def claim_bytes(served, run_id: str, worker: str) -> bytes:
    body = to_json({"worker_id": worker, "run_id": run_id, "wait_s": 30})
    head = (
        f"POST {ops.CLAIM.path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {served.owner}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Crowd:
    """Clients on bare sockets, each with a claim that waits."""

    def __init__(self, served, run_id: str, count: int) -> None:
        self.replies: list[dict] = []
        self.waiting = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all(served, run_id, count)))
        self._thread.start()
        until(lambda: self.waiting == count, "crowd")

    async def _all(self, served, run_id: str, count: int) -> None:
        await asyncio.gather(*(self._one(served, run_id, number) for number in range(count)))

    async def _one(self, served, run_id: str, number: int) -> None:
        reader, writer = await asyncio.open_connection(*served.client().address)
        try:
            writer.write(claim_bytes(served, run_id, f"w{number}"))
            await writer.drain()
            self.waiting += 1
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            self.replies.append(json.loads(await reader.readexactly(length)))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_a_thousand_who_wait_cost_no_thread_each_and_one_rollout_a_few_looks(counted, run_id):
    store, count, threads = counted.store, 1000, threading.active_count()
    crowd = Crowd(counted, run_id, count)
    looks = settled(store)
    assert looks <= count + 5  # at most one each on coming; who finds others waiting makes none
    assert threading.active_count() <= threads + 2
    store.enqueue(run_id, [request("one")])
    until(lambda: len(crowd.replies) == 1, "claim")
    # Its own, one that finds nothing more, and one because a lease has begun.
    assert settled(store) - looks <= 3
    started = time.monotonic()
    store.enqueue(run_id, [request(number) for number in range(count - 1)])
    crowd.join()
    assert time.monotonic() - started < 10
    assert {len(reply["claims"]) for reply in crowd.replies} == {1}
    assert len({reply["claims"][0]["rollout"]["rollout_id"] for reply in crowd.replies}) == count
    assert settled(store) - looks <= count + 100


def test_a_closed_run_answers_all_of_a_crowd_at_once(counted, run_id):
    crowd = Crowd(counted, run_id, 200)
    settled(counted.store)
    started = time.monotonic()
    counted.store.set_run_status(run_id, "succeeded")
    crowd.join()
    assert time.monotonic() - started < 2
    assert [reply for reply in crowd.replies if reply["run_is_open"]] == []


def test_a_client_that_left_is_given_no_work(counted, run_id):
    left = [socket.create_connection(counted.client().address) for _ in range(5)]
    for connection in left:
        connection.sendall(claim_bytes(counted, run_id, "left"))
    until(lambda: counted.store.looks > 0, "look")
    settled(counted.store)
    for connection in left:
        connection.close()
    time.sleep(0.3)
    counted.store.enqueue(run_id, [request()])
    settled(counted.store)
    assert running(counted, run_id) == 0
    body = {"worker_id": "w", "run_id": run_id, "wait_s": 5}
    assert len(counted.client().ok(ops.CLAIM, body)["claims"]) == 1
