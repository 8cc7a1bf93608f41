"""Several real processes on one database: they share it, and killing one harms nothing."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter

import pytest
from agentlightning.errors import StoreClosed
from agentlightning.store import RolloutQuery, waiting
from agentlightning.testing.store import request
from agentlightning_postgres.store import PostgresStore

DEADLINE_S = 60

PREAMBLE = """
import sys, time
from agentlightning.records import Outcome, RolloutConfig, RolloutRequest, Span
from agentlightning.store import Result
from agentlightning_postgres.store import PostgresStore

def request(task):
    return RolloutRequest(input=task)

def span(key, n=1):
    return Span(rollout_id=key.rollout_id, attempt=key.number, span_id=f"{n:016x}", trace_id="0" * 32,
                kind="tool", name="step", start_ns=n, end_ns=n)

store = PostgresStore(sys.argv[1])
print("open", flush=True)
"""


class Process:
    """A Python process with a store open; it imports no pytest, to start quickly."""

    def __init__(self, url, code):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.next_line() == "open"

    def next_line(self):
        return self.process.stdout.readline().strip()

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def rest(self):
        """What it still prints; it has to end well."""
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0
        return output.split()

    def end(self):
        self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def start(url):
    started = []

    def begin(code):
        started.append(Process(url, code))
        return started[-1]

    yield begin
    for process in started:
        process.end()


def all_at_once(processes):
    for process in processes:
        process.go()
    return [process.rest() for process in processes]


def test_processes_claim_disjoint_rollouts(store, start):
    run_id = store.create_run("shared", {}).run_id
    store.enqueue(run_id, [request(n) for n in range(240)])
    work = f"""
        input()
        done = []
        while True:
            turnover = store.finish_and_claim(done, {run_id!r}, "w", limit=2)
            if not turnover.claims:
                break
            print(*(c.key.rollout_id for c in turnover.claims))
            done = [
                Result(key=c.key, outcome=Outcome(status="succeeded"), spans=(span(c.key),))
                for c in turnover.claims
            ]
        store.close()
    """
    outputs = all_at_once([start(work) for _ in range(3)])
    times = Counter(name for output in outputs for name in output)
    assert len(times) == 240
    assert set(times.values()) == {1}
    assert sum(map(bool, outputs)) >= 2
    statistics = store.statistics(run_id)
    assert (statistics.rollouts["succeeded"], statistics.spans) == (240, 240)


def test_processes_that_open_an_empty_database_together_all_succeed(url):
    code = 'store.create_run("mine", {}); store.close()'
    program = [sys.executable, "-c", PREAMBLE + code, url]
    opening = [subprocess.Popen(program, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(DEADLINE_S) for process in opening] == [0, 0, 0]
    with PostgresStore(url) as store:
        assert len(store.runs()) == 3


def test_processes_with_one_key_or_one_name_make_one_thing_and_number_what_they_publish(store, start):
    run_id = store.create_run("shared", {}).run_id
    work = f"""
        input()
        for n in range(8):
            rollout, = store.enqueue({run_id!r}, [request("once")], key=f"key {{n}}")
            version = store.publish({run_id!r}, {{}}, note=str(n))
            begun = store.begin(f"name {{n}}", request("x"), "worker")
            print(rollout.rollout_id, version.version, begun.run.run_id)
        store.close()
    """
    outputs = all_at_once([start(work) for _ in range(3)])
    made, versions, runs = ([output[part::3] for output in outputs] for part in range(3))
    assert made[0] == made[1] == made[2]
    assert len(set(made[0])) == 8
    assert sorted(int(version) for output in versions for version in output) == list(range(1, 25))
    assert runs[0] == runs[1] == runs[2]
    assert len(store.rollouts(RolloutQuery(run_id=run_id)).items) == 8


def test_another_process_wakes_a_waiting_claim_at_once(store, start):
    run_id = store.create_run("shared", {}).run_id
    other = start(f"input(); store.enqueue({run_id!r}, [request(time.monotonic())]); store.close()")
    threading.Timer(0.3, other.go).start()
    (claim,) = waiting.claim_when_ready(store, run_id, "here", timeout_s=DEADLINE_S)
    assert time.monotonic() - claim.rollout.input < 1.0
    other.rest()


def test_a_killed_worker_loses_its_attempt_and_nothing_else(store, start):
    run_id = store.create_run("shared", {}).run_id
    store.enqueue(run_id, [request("task", lease_s=0.5)])
    worker = start(f'claim, = store.claim({run_id!r}, "doomed"); print("claimed", flush=True); input()')
    assert worker.next_line() == "claimed"
    worker.end()
    (claim,) = waiting.claim_when_ready(store, run_id, "heir", timeout_s=DEADLINE_S)
    assert (claim.rollout.input, claim.key.number) == ("task", 2)
    statuses = [attempt.status for attempt in store.attempts(claim.key.rollout_id)]
    assert statuses == ["lost", "running"]


def test_a_process_that_stands_still_in_the_middle_of_a_call_does_not_stop_the_others(store, start):
    """It holds the rollout it claims; the others claim the next one, and this one when it has died."""
    run_id = store.create_run("shared", {}).run_id
    first, second = store.enqueue(run_id, [request("first"), request("second")])
    stuck = start(f"""
        with store._writing() as tables:
            tables.queued({run_id!r}, 1)
            print("holding", flush=True)
            time.sleep(600)
    """)
    assert stuck.next_line() == "holding"
    stuck.process.send_signal(signal.SIGSTOP)
    (claim,) = store.claim(run_id, "w")
    assert claim.key.rollout_id == second.rollout_id
    threading.Timer(0.3, stuck.end).start()
    (claim,) = waiting.claim_when_ready(store, run_id, "w", timeout_s=DEADLINE_S)
    assert claim.key.rollout_id == first.rollout_id


def test_a_store_opened_before_a_fork_is_refused_in_the_child_and_works_on_in_the_parent(store):
    run_id = store.create_run("shared", {}).run_id
    child = os.fork()
    if child == 0:
        refusals = 0
        for call in (store.runs, lambda: store.watch(None, lambda: None)):
            try:
                call()
            except StoreClosed as error:
                refusals += "before this process was forked" in str(error)
        store.close()
        os._exit(40 + refusals)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert [run.run_id for run in store.runs()] == [run_id]
