"""Several real processes on one file: they share it, and killing one harms nothing."""

import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter

import pytest
from agentlightning.errors import StoreUnavailable
from agentlightning.store import RolloutQuery, waiting
from agentlightning.testing.store import request, span
from agentlightning_sqlite.store import SqliteStore

DEADLINE_S = 60


PREAMBLE = """
import sys, time
from agentlightning.records import Outcome, RolloutConfig, RolloutRequest, Span
from agentlightning.store import Result
from agentlightning_sqlite.store import SqliteStore

def request(task):
    return RolloutRequest(input=task)

def span(key, n=1):
    return Span(rollout_id=key.rollout_id, attempt=key.number, span_id=f"{n:016x}", trace_id="0" * 32,
                kind="tool", name="step", start_ns=n, end_ns=n)

store = SqliteStore(sys.argv[1])
"""


def start(url, code):
    """A Python process with a store open on ``url``; it imports no pytest, to start quickly."""
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), url], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/runs.db"


def test_processes_claim_disjoint_rollouts(url):
    with SqliteStore(url) as store:
        run_id = store.create_run("shared", {}).run_id
        store.enqueue(run_id, [request(n) for n in range(300)])
        work = f"""
            while claims := store.claim({run_id!r}, "w", limit=2):
                store.finish([
                    Result(key=c.key, outcome=Outcome(status="succeeded"), spans=(span(c.key),)) for c in claims
                ])
                print(*(c.key.rollout_id for c in claims), flush=True)
            store.close()
        """
        workers = [start(url, work) for _ in range(3)]
        outputs = [worker.communicate(timeout=DEADLINE_S)[0].split() for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0, 0]
        times = Counter(name for output in outputs for name in output)
        assert len(times) == 300
        assert set(times.values()) == {1}
        statistics = store.statistics(run_id)
        assert (statistics.rollouts["succeeded"], statistics.spans) == (300, 300)


def test_processes_that_open_a_new_file_together_all_succeed(tmp_path):
    url = f"sqlite:///{tmp_path}/new.db"
    workers = [start(url, 'store.create_run("mine", {})') for _ in range(4)]
    for worker in workers:
        worker.communicate(timeout=DEADLINE_S)
    assert [worker.returncode for worker in workers] == [0] * 4
    with SqliteStore(url) as store:
        assert len(store.runs()) == 4


def test_another_process_wakes_a_waiting_claim_at_once(url):
    with SqliteStore(url) as store:
        run_id = store.create_run("shared", {}).run_id
        code = f"""
            print("ready", flush=True)
            time.sleep(0.3)
            store.enqueue({run_id!r}, [request(time.time())])
        """
        worker = start(url, code)
        assert worker.stdout.readline() == "ready\n"
        (claim,) = waiting.claim_when_ready(store, run_id, "here", timeout_s=DEADLINE_S)
        assert time.time() - claim.rollout.input < 10.0  # and not when the wait is over
        worker.communicate(timeout=DEADLINE_S)


def test_a_killed_worker_loses_its_attempt_and_nothing_else(url):
    with SqliteStore(url) as store:
        run_id = store.create_run("shared", {}).run_id
        store.enqueue(run_id, [request("task", lease_s=0.5)])
        worker = start(
            url,
            f'claim, = store.claim({run_id!r}, "doomed"); print("claimed", flush=True); time.sleep(60)',
        )
        assert worker.stdout.readline() == "claimed\n"
        worker.send_signal(signal.SIGKILL)
        worker.wait(DEADLINE_S)
        worker.stdout.close()
        (claim,) = waiting.claim_when_ready(store, run_id, "heir", timeout_s=DEADLINE_S)
        assert (claim.rollout.input, claim.key.number) == ("task", 2)
        assert [attempt.status for attempt in store.attempts(claim.key.rollout_id)] == [
            "lost",
            "running",
        ]


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.3])
def test_a_writer_killed_at_any_moment_leaves_a_whole_file(url, after_s):
    """Whatever a call had answered is there after kill -9, and each call is there whole or not at all."""
    with SqliteStore(url) as store:
        run_id = store.create_run("shared", {}).run_id
        code = f"""
            number = 0
            while True:
                number += 1
                rollouts = store.enqueue({run_id!r}, [request(number)] * 3)
                claims = store.claim({run_id!r}, "writer", limit=3)
                store.finish([Result(key=c.key, outcome=Outcome(status="succeeded"),
                    spans=tuple(span(c.key, n) for n in range(20))) for c in claims])
                print(number, flush=True)
        """
        writer = start(url, code)
        first = writer.stdout.readline()
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)
        answered = [int(line) for line in (first + writer.stdout.read()).split("\n") if line]
        writer.wait(DEADLINE_S)
        writer.stdout.close()
        found = store.rollouts(RolloutQuery(run_id=run_id, limit=100_000)).items
        by_call = Counter(rollout.input for rollout in found)
        assert set(by_call.values()) == {3}
        assert max(by_call) - len(answered) in (0, 1)
        done = [rollout.rollout_id for rollout in found if rollout.status == "succeeded"]
        assert len(done) >= 3 * len(answered)
        spans = Counter(item.rollout_id for item in store.spans(done))
        assert spans == dict.fromkeys(done, 20)
        store.enqueue(run_id, [request("life goes on")])
    other = sqlite3.connect(url.removeprefix("sqlite:///"))
    assert other.execute("pragma integrity_check").fetchone() == ("ok",)
    other.close()


def test_a_process_that_holds_the_file_is_waited_for(url):
    with SqliteStore(url) as store:
        run_id = store.create_run("shared", {}).run_id
        other = sqlite3.connect(
            url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False
        )
        other.execute("begin immediate")
        timer = threading.Timer(0.3, other.execute, ("rollback",))
        timer.start()
        began = time.monotonic()
        store.enqueue(run_id, [request()])
        assert time.monotonic() - began > 0.2
        timer.join()
        other.close()


def test_a_disk_that_is_full_stores_nothing_and_says_so(url):
    """SQLite's own limit of pages stands in for the disk: the same error, at the same places."""
    with SqliteStore(url) as store:
        claim = store.begin("local", request(), "worker")
        pages = store._connection.execute("pragma page_count").fetchone()[0]
        store._connection.execute(f"pragma max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match="make room on the disk"):
            store.add_spans([span(claim.key, n, attributes={"text": "x" * 1000}) for n in range(100)])
        assert list(store.spans([claim.key.rollout_id])) == []
        store._connection.execute(f"pragma max_page_count = {pages + 1000}")
        assert store.add_spans([span(claim.key)]) == 1


def test_a_thread_looks_for_others_only_while_somebody_waits(url):
    def looking():
        return [t for t in threading.enumerate() if t.name == "agentlightning-sqlite-watch"]

    with SqliteStore(url) as store:
        assert looking() == []
        leave = store.watch(None, lambda: None)
        assert len(looking()) == 1
        leave()
        deadline = time.monotonic() + 5
        while looking() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert looking() == []
        store.watch(None, lambda: None)
        assert len(looking()) == 1
    assert looking() == []
