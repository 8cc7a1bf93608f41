import threading
import time

import pytest
from agentlightning.errors import Deadline, LimitExceeded, StoreUnavailable
from agentlightning.recording.attempt import reward_span
from agentlightning.recording.sink import Sink
from agentlightning.records import AttemptKey, RolloutRequest
from agentlightning.store.memory import MemoryStore


class TroubledStore(MemoryStore):
    """A real store that can be out of reach, slow, or refuse one name."""

    down = False
    slow_s = 0.0
    refuses = None

    def add_spans(self, spans):
        time.sleep(self.slow_s)
        if self.down:
            raise StoreUnavailable("the disk is away")
        if any(span.name == self.refuses for span in spans):
            raise LimitExceeded("too large")
        return super().add_spans(spans)


@pytest.fixture
def store():
    return TroubledStore()


@pytest.fixture
def key(store):
    run = store.create_run("r", {})
    store.enqueue(run.run_id, [RolloutRequest(input=1)])
    (claim,) = store.claim(run.run_id, "w")
    return claim.key


def span(key, name="reward"):
    return reward_span(key, 1.0, name=name, source="emitted")


def stored(store, key):
    return [item.name for item in store.spans([key.rollout_id])]


def test_flush_returns_when_everything_is_in_the_store_in_order(store, key):
    sink = Sink(store, flush_every_s=10)
    for number in range(1200):
        sink.add(span(key, str(number)))
    sink.flush()
    assert stored(store, key) == [str(number) for number in range(1200)]
    sink.close()


def test_spans_are_written_soon_without_a_flush(store, key):
    sink = Sink(store)
    sink.add(span(key))
    deadline = time.monotonic() + 5
    while not stored(store, key) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stored(store, key) == ["reward"]
    sink.close()


def test_adding_never_waits_for_a_slow_store_and_nothing_is_lost(store, key):
    store.slow_s = 0.1
    sink = Sink(store)
    started = time.monotonic()
    for number in range(2000):
        sink.add(span(key, str(number)))
    assert time.monotonic() - started < 0.5 + 2000 * 0.0005
    sink.flush()
    assert len(stored(store, key)) == 2000
    sink.close()


def test_take_gives_what_is_not_written_yet(store, key):
    sink = Sink(store, flush_every_s=10)
    other = AttemptKey("elsewhere", 1)
    sink.add(span(key, "mine"))
    sink.add(span(other, "theirs"))
    assert [item.name for item in sink.take(key)] == ["mine"]
    assert sink.take(key) == ()
    assert [item.name for item in sink.take(other)] == ["theirs"]
    sink.close()
    assert stored(store, key) == []


def test_take_includes_what_is_being_written_this_moment(store, key):
    store.down = True
    sink = Sink(store, flush_every_s=0)
    sink.add(span(key, "stuck"))
    time.sleep(0.1)
    assert [item.name for item in sink.take(key)] == ["stuck"]
    store.down = False
    sink.close()


def test_an_absent_store_is_waited_for_and_flush_says_what_it_waits_for(store, key):
    store.down = True
    sink = Sink(store)
    sink.add(span(key))
    with pytest.raises(Deadline, match="the disk is away"):
        sink.flush(timeout_s=0.2)
    store.down = False
    sink.flush()
    assert stored(store, key) == ["reward"]
    assert sink.refused == 0
    sink.close()


def test_a_span_that_the_store_refuses_is_counted_and_does_not_hold_up_the_others(store, key, caplog):
    store.refuses = "bad"
    sink = Sink(store, flush_every_s=10)
    for number in range(10):
        sink.add(span(key, "bad" if number == 6 else str(number)))
    sink.flush()
    assert stored(store, key) == [str(number) for number in range(10) if number != 6]
    assert sink.refused == 1
    assert "refused span 'bad'" in caplog.text
    sink.close()


def test_many_threads_lose_nothing(store, key):
    sink = Sink(store)
    threads = [
        threading.Thread(target=lambda n=n: [sink.add(span(key, f"{n}-{i}")) for i in range(100)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    assert len(set(stored(store, key))) == 800


def test_closing_ends_the_thread_and_a_late_span_is_reported(store, key, caplog):
    before = set(threading.enumerate())
    sink = Sink(store)
    sink.add(span(key))
    sink.close()
    sink.close()
    sink.add(span(key, "late"))
    assert sink.refused == 1
    assert "late" in caplog.text
    assert set(threading.enumerate()) <= before
