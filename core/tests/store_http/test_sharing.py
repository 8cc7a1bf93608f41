"""One client among threads, and among processes."""

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentlightning.errors import BadValue, StoreClosed
from agentlightning.store import RolloutQuery
from agentlightning.store.http import line
from agentlightning.testing.store.making import request, result, span

THREADS = 100


def test_a_hundred_threads_share_a_client(serving, store, run_id):
    store.enqueue(run_id, [request(number) for number in range(3 * THREADS)])
    start = threading.Barrier(THREADS)

    def work(number):
        start.wait()
        done = []
        while claims := store.claim(run_id, f"worker {number}"):
            store.heartbeat(f"worker {number}", [claims[0].key])
            store.add_spans([span(claims[0].key)])
            store.finish([result(claims[0])])
            done.append(claims[0].rollout.input)
        return done

    with ThreadPoolExecutor(THREADS) as threads:
        done = [item for items in threads.map(work, range(THREADS)) for item in items]
    assert sorted(done) == list(range(3 * THREADS))
    counts = store.statistics(run_id)
    assert (counts.rollouts["succeeded"], counts.spans) == (3 * THREADS, 3 * THREADS)


def test_waiting_calls_do_not_keep_others_out(store, run_id):
    (rollout,) = store.enqueue(run_id, [request()])
    with ThreadPoolExecutor(THREADS) as threads:
        waits = [
            threads.submit(store.wait_over, [rollout.rollout_id], timeout_s=20) for _ in range(THREADS)
        ]
        assert store.run(run_id).status == "open"
        store.cancel([rollout.rollout_id])
        assert {wait.result()[0].status for wait in waits} == {"cancelled"}


def test_connections_are_kept(serving, run_id, monkeypatch):
    connections = []
    connect = line._Connection.connect
    monkeypatch.setattr(
        line._Connection, "connect", lambda self: (connections.append(self), connect(self))
    )
    store = serving.client()
    for _ in range(50):
        store.run(run_id)
    assert len(connections) == 1


def test_it_does_not_travel_to_another_process_by_pickle(store):
    with pytest.raises(StoreClosed, match="by its URL"):
        pickle.dumps(store)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_is_refused(store, run_id):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.run(run_id)
        except StoreClosed as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(child, 0)
    assert "before this process was forked" in message
    assert store.run(run_id).run_id == run_id


def test_what_json_cannot_hold_is_refused_before_it_is_sent(store):
    for call in (
        lambda: store.run("\ud83d"),
        lambda: store.claim(None, object()),
        lambda: store.rollouts(RolloutQuery(run_id=object())),
    ):
        with pytest.raises(BadValue):
            call()
