"""Spans that have to wait: for a store that is slow, away, or comes back in another process."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc

import pytest
from agentlightning.errors import Deadline, StoreUnavailable, Unauthorized
from agentlightning.recording.attempt import reward_span
from agentlightning.recording.backlog import KEPT
from agentlightning.recording.sink import Sink
from agentlightning.records import AttemptKey, RolloutRequest
from agentlightning.store.memory import MemoryStore
from agentlightning_sqlite.store import SqliteStore

BATCH = 500

ADDING = """
import sys, time
from agentlightning.errors import StoreUnavailable
from agentlightning.recording.attempt import reward_span
from agentlightning.recording.sink import Sink
from agentlightning.records import AttemptKey
from agentlightning_sqlite.store import SqliteStore

class Away(SqliteStore):
    def add_spans(self, spans):
        raise StoreUnavailable("away")

sink = Sink(Away(sys.argv[1]))
for number in range(int(sys.argv[3])):
    key = AttemptKey(sys.argv[2], 1)
    sink.add(reward_span(key, 1.0, name=str(number), source="emitted"))
while sys.argv[4] == "killed" and sink.spilled < int(sys.argv[3]) - 2500:
    time.sleep(0.01)
print(sink.spilled, flush=True)
if sys.argv[4] == "killed":
    time.sleep(60)
try:
    sink.close(timeout_s=0)
except Exception as error:
    print(error)
"""


class TroubledStore(SqliteStore):
    """A real store that can be out of reach or slow."""

    trouble = None
    slow_s = 0.0

    def add_spans(self, spans):
        time.sleep(self.slow_s)
        if self.trouble:
            raise self.trouble
        return super().add_spans(spans)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where spans wait on disk."""
    monkeypatch.setenv("AGENTLIGHTNING_SPILL", str(tmp_path / "spill"))
    return tmp_path / "spill"


@pytest.fixture
def store(tmp_path):
    with TroubledStore(f"sqlite:///{tmp_path / 'runs.db'}") as opened:
        yield opened


@pytest.fixture
def sink(store):
    made = Sink(store)
    yield made
    store.trouble, store.slow_s = None, 0.0
    made.close()


@pytest.fixture
def key(store):
    run = store.create_run("r", {})
    store.enqueue(run.run_id, [RolloutRequest(input=1)])
    (claim,) = store.claim(run.run_id, "w")
    return claim.key


def span(key, name="reward"):
    return reward_span(key, 1.0, name=str(name), source="emitted")


def fill(sink, key, count, start=0):
    for number in range(start, start + count):
        sink.add(span(key, number))


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def spill(sink, key, count):
    """Add spans until so many have gone to disk."""
    fill(sink, key, count)
    wait_for(lambda: sink.spilled >= count - KEPT - BATCH)


def stored(store, key):
    return [item.name for item in store.spans([key.rollout_id])]


def names(count):
    return [str(number) for number in range(count)]


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_slow_store_loses_none_of_20_000_spans_and_never_delays_the_agent(store, sink, key, folder):
    store.slow_s = 0.2
    took = []
    for number in range(20_000):
        made = span(key, number)
        before = time.monotonic()
        sink.add(made)
        took.append(time.monotonic() - before)
    assert sum(took) < 2  # the store takes eight seconds for them, 0.2 for each of 40 batches
    assert sorted(took)[-20] < store.slow_s / 2
    sink.flush(timeout_s=60)
    assert stored(store, key) == names(20_000)
    assert sink.spilled > 10_000
    assert sink.refused == 0
    sink.close()
    assert files(folder) == []


def test_memory_is_bounded_while_the_store_is_away(store, sink, key):
    store.trouble = StoreUnavailable("away")
    spill(sink, key, 4000)
    tracemalloc.start()
    try:
        fill(sink, key, 12_000)
        wait_for(lambda: sink.spilled >= 16_000 - KEPT - BATCH)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 6 * 2**20  # 12,000 such spans are some 20 MB
    store.trouble = None
    sink.flush()
    assert len(stored(store, key)) == 16_000


def test_memory_stays_flat_over_10_000_rollouts():
    with MemoryStore() as store:
        sink = Sink(store, flush_every_s=60)

        def work(rollouts):
            for number in range(rollouts):
                key = AttemptKey(f"rollout-{number}", 1)
                fill(sink, key, 3)
                assert len(sink.take(key)) == 3

        work(100)
        tracemalloc.start()
        try:
            work(10_000)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert grown < 2**20
        sink.close()


def test_an_attempts_spans_are_found_wherever_they_wait(store, sink, key):
    store.trouble = StoreUnavailable("away")
    other = AttemptKey("elsewhere", 1)
    for number in range(3000):
        sink.add(span(key, number))
        sink.add(span(other, number))
    wait_for(lambda: sink.spilled >= 6000 - KEPT - BATCH)
    assert [item.name for item in sink.take(key)] == names(3000)
    assert [item.name for item in sink.take(other)] == names(3000)
    store.trouble = None
    sink.flush()


def test_taken_spans_are_stored_once_though_they_lie_on_disk(store, sink, key):
    store.trouble = StoreUnavailable("away")
    spill(sink, key, 3000)
    taken = sink.take(key)
    store.trouble = None
    store.add_spans(taken)
    sink.flush()
    assert stored(store, key) == names(3000)


def test_what_a_closed_sink_could_not_write_is_written_by_the_next(store, key, folder):
    store.trouble = StoreUnavailable("away")
    sink = Sink(store)
    spill(sink, key, 2600)
    with pytest.raises(Deadline, match=f"2600 spans lie in {folder}.*next process") as refusal:
        sink.close(timeout_s=0.1)
    assert "away" in str(refusal.value)
    sink.close()
    assert sink.refused == 0
    store.trouble = None
    later = Sink(store)
    later.add(span(key, 2600))
    later.flush()
    assert stored(store, key) == names(2601)
    later.close()
    assert files(folder) == []


def test_what_a_killed_process_left_on_disk_is_written_by_the_next(store, key, folder, caplog):
    command = [sys.executable, "-c", ADDING, store.url, key.rollout_id, "5000", "killed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        spilled = int(process.stdout.readline())
        bystander = Sink(store)
        bystander.flush()
        assert stored(store, key) == []  # they are the other's, which lives
        bystander.close()
        os.kill(process.pid, signal.SIGKILL)
    sink = Sink(store)
    assert "an earlier process" in caplog.text
    sink.flush()
    written = stored(store, key)
    assert len(written) >= spilled  # it went on until it was killed
    assert written == names(len(written))
    sink.close()
    assert files(folder) == []


def test_a_line_cut_short_by_a_kill_is_told_and_left_out(store, key, folder, caplog):
    store.trouble = StoreUnavailable("away")
    sink = Sink(store)
    fill(sink, key, 3)
    with pytest.raises(Deadline):
        sink.close(timeout_s=0)
    (path,) = folder.rglob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    store.trouble = None
    later = Sink(store)
    later.flush()
    assert stored(store, key) == names(2)
    assert str(path) in caplog.text
    later.close()


def test_a_store_that_ends_with_its_process_leaves_nothing_behind_and_says_what_is_lost(folder):
    class Away(MemoryStore):
        def add_spans(self, spans):
            raise StoreUnavailable("away")

    sink = Sink(Away())
    spill(sink, AttemptKey("a", 1), 3000)
    with pytest.raises(Deadline, match="3000 spans are lost"):
        sink.close(timeout_s=0)
    assert sink.refused == 3000
    assert files(folder) == []


def test_without_a_disk_spans_stay_in_memory_and_that_is_said(store, sink, key, folder, caplog):
    folder.write_text("a file, where a folder should be")
    store.trouble = StoreUnavailable("away")
    fill(sink, key, 5000)
    wait_for(lambda: "cannot be put on disk" in caplog.text)
    assert "AGENTLIGHTNING_SPILL" in caplog.text
    store.trouble = None
    sink.flush()
    assert stored(store, key) == names(5000)
    assert (sink.spilled, sink.refused) == (0, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files there")
def test_a_full_disk_leaves_no_half_file_and_says_what_is_lost(store, key, folder):
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
    limited += ADDING.replace("class Away(SqliteStore)", "class Away(MemoryStore)").replace(
        "sink = Sink(Away(sys.argv[1]))", "store = Away(); store.url = sys.argv[1]; sink = Sink(store)"
    )
    limited = limited.replace(
        "from agentlightning_sqlite.store import SqliteStore",
        "from agentlightning.store.memory import MemoryStore",
    )
    command = [sys.executable, "-c", limited, store.url, key.rollout_id, "3000", "ends"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot be put on disk" in done.stderr
    assert "3000 of 3000 spans are lost" in done.stdout
    assert list(folder.rglob("*.jsonl")) == []


def test_a_token_that_is_not_taken_at_the_moment_costs_no_span(store, sink, key):
    store.trouble = Unauthorized("a token of yesterday")
    fill(sink, key, 10)
    with pytest.raises(Deadline, match="yesterday"):
        sink.flush(timeout_s=0.2)
    store.trouble = None
    sink.flush()
    assert stored(store, key) == names(10)


def test_spans_can_be_made_later_and_one_that_cannot_be_made_holds_up_no_other(store, key, caplog):
    sink = Sink(store, flush_every_s=60)
    made = [span(key, number) for number in range(4)]
    sink.add(made[0])
    sink.add_later(key, lambda: made[1])
    sink.add_later(key, lambda: 1 / 0)
    sink.add_later(key, lambda: made[2])
    assert [item.name for item in sink.take(key)] == names(3)
    assert sink.refused == 1
    assert "ZeroDivisionError" in caplog.text
    sink.add_later(key, lambda: made[3])
    sink.flush()
    assert stored(store, key) == ["3"]
    sink.close()


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory, which works differently elsewhere")
def test_where_no_thread_can_be_started_the_agent_goes_on_and_spans_are_kept(store, key):
    limited = "import resource, threading; threading.stack_size(2**30)\n"
    limited += "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
    limited += ADDING.replace("Away(sys.argv[1])", "SqliteStore(sys.argv[1])")
    command = [sys.executable, "-c", limited, store.url, key.rollout_id, "10", "ends"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "can't start new thread" in done.stderr
    assert "10 spans lie in" in done.stdout
    sink = Sink(store)
    sink.flush()
    assert stored(store, key) == names(10)
    sink.close()
