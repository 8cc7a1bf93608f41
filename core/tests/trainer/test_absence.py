"""A store that goes away under a training: its calls wait, happen once, and do not wait for ever."""

import threading
import time

import pytest
from agentlightning.errors import Deadline, StoreAway, UnknownRun
from agentlightning.records import RolloutRequest
from agentlightning.store import RolloutQuery
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store import request, span
from agentlightning.testing.store.making import result
from agentlightning.trainer import absence
from agentlightning.trainer.absence import Absence
from agentlightning.trainer.lasting_store import LastingStore

AWAY = "nobody there"


class Failing(MemoryStore):
    """A store whose next transactions fail: before they begin, or after they were committed."""

    before = after = 0

    def _fail(self, when):
        if left := getattr(self, when):
            setattr(self, when, left - 1)
            raise StoreAway(AWAY)

    def _reading(self):
        self._fail("before")
        return super()._reading()

    def _writing(self):
        self._fail("before")
        return super()._writing()

    def _own(self, rollouts):
        self._fail("after")
        return super()._own(rollouts)


@pytest.fixture
def behind():
    with Failing() as store:
        yield store


@pytest.fixture
def store(behind):
    store = LastingStore(behind, Absence(60))
    store.runs()  # it has answered once
    return store


@pytest.fixture
def run_id(behind):
    return behind.create_run("run", {}).run_id


def test_a_call_waits_until_the_store_is_back(store, behind, run_id, caplog):
    behind.before = 3
    assert store.run(run_id).name == "run"
    away, back = caplog.messages
    assert away == f"the store is away; waiting 60 s for it: {AWAY}"
    assert back.startswith("the store is back")


def test_a_write_whose_reply_was_lost_is_made_once(store, behind, run_id):
    behind.after = 2
    made = store.enqueue(run_id, [RolloutRequest(input="task")])
    assert behind.after == 0
    assert [item.rollout_id for item in behind.rollouts(RolloutQuery()).items] == [
        item.rollout_id for item in made
    ]


def test_what_the_store_refuses_is_told_at_once(store):
    with pytest.raises(UnknownRun):
        store.run("run-of-nobody")


def test_a_store_that_never_answered_is_not_waited_for(behind):
    behind.before = 1
    with pytest.raises(StoreAway):
        LastingStore(behind, Absence(60)).runs()


def test_all_calls_of_one_absence_share_its_time(behind, run_id, monkeypatch):
    store = LastingStore(behind, Absence(0.3))
    store.runs()
    behind.before = 10**6
    with pytest.raises(StoreAway):
        store.run(run_id)
    tried = behind.before
    for _ in range(3):
        with pytest.raises(StoreAway):
            store.set_run_status(run_id, "failed")
    assert behind.before == tried  # not even tried, so soon

    monkeypatch.setattr(absence, "_GONE_S", 0.0)
    with pytest.raises(StoreAway):
        store.runs()
    assert behind.before == tried - 1
    behind.before = 0
    store.runs()
    behind.before = 2
    assert store.run(run_id)  # a new absence, with a time of its own


def test_who_gives_up_waiting_is_told_at_once(store, behind):
    behind.before = 10**6
    raised = []

    def call():
        try:
            store.runs()
        except StoreAway as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while behind.before > 10**6 - 2:
        time.sleep(0.01)
    store.absence.give_up()
    thread.join(30)
    assert raised


def test_waiting_for_rollouts_outlasts_an_absence(store, behind, run_id):
    store.enqueue(run_id, [request()])
    with pytest.raises(Deadline, match="0 of 1"):
        store.wait([behind.rollouts(RolloutQuery()).items[0].rollout_id], timeout_s=0.1, count=1)
    (claim,) = behind.claim(run_id, "worker")
    behind.finish([result(claim)])
    behind.before = 3
    (over,) = store.wait([claim.key.rollout_id], timeout_s=0.1, count=1)
    assert over.status == "succeeded"


def test_spans_are_read_on_where_an_absence_interrupted_them(store, behind, run_id):
    store.enqueue(run_id, [request() for _ in range(3)])
    claims = behind.claim(run_id, "worker", limit=3)
    spans = [span(claim.key, number) for claim in claims for number in range(4)]
    behind.add_spans(spans)
    read = []
    for item in store.spans([claim.key.rollout_id for claim in claims]):
        behind.before = 2 if len(read) in (3, 7) else 0
        read.append(item.span_id)
    assert read == [item.span_id for item in spans]
