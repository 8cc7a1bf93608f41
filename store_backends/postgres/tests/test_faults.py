"""A server that goes away and comes back, connections that break, and too many of them."""

import logging
import threading
import time
from contextlib import suppress

import psycopg
import pytest
from agentlightning.errors import StoreAway, StoreClosed, StoreUnavailable
from agentlightning.store import waiting
from agentlightning.testing.postgres import PostgresServer
from agentlightning.testing.store import request, span
from agentlightning_postgres.listening import THREAD_NAME
from agentlightning_postgres.store import MAX_CONNECTIONS, PostgresStore

DEADLINE_S = 60


@pytest.fixture(scope="module")
def frail():
    """A server of this module's own, to be stopped and killed."""
    with PostgresServer(settings={"max_connections": "12"}) as server:
        yield server


@pytest.fixture
def url(frail):
    yield frail.create_database()
    if not frail.is_running:
        frail.start()


def listeners():
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def in_the_end(is_so):
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_that_was_restarted_between_two_calls_is_not_even_noticed(store, frail):
    claim = store.begin("local", request(), "worker")
    frail.halt()
    frail.start()
    assert store.add_spans([span(claim.key)]) == 1


def test_a_call_on_a_stopped_server_fails_and_later_ones_work_without_reopening(store, frail):
    claim = store.begin("local", request(), "worker")

    def add_span_while_it_stops():
        with store._writing() as tables:
            tables.rollouts([claim.key.rollout_id])
            frail.halt()
            tables.insert_spans([span(claim.key, 1)])

    with pytest.raises(StoreAway, match="it is stored once"):
        add_span_while_it_stops()
    threading.Timer(0.5, frail.start).start()
    assert store.add_spans([span(claim.key, 2)]) == 1  # it waits until the server is back
    assert [item.start_ns for item in store.spans([claim.key.rollout_id])] == [2]


def test_a_server_that_stays_away_is_told_within_seconds_and_once(store, frail, monkeypatch, caplog):
    store.create_run("run", {})
    frail.halt()
    monkeypatch.setattr(store._pool, "timeout", 0.5)
    began = time.monotonic()
    with pytest.raises(StoreAway, match="does the server run"):
        store.runs()
    assert time.monotonic() - began < 10
    assert caplog.records == []  # the error says it all, and the pool warns of each try otherwise


def test_what_other_pools_of_the_program_log_is_left_alone(store, caplog):
    logging.getLogger("psycopg.pool").warning("error connecting in %r: %s", "theirs", "refused")
    assert caplog.messages == ["error connecting in 'theirs': refused"]


@pytest.mark.parametrize("told", ["halted", "password", "database"])
def test_only_a_server_that_may_come_back_is_worth_waiting_for(url, frail, told):
    wrong = {
        "password": url.replace("//agentlightning:", "//agentlightning:x"),
        "database": url + "_of_nobody",
    }
    if told == "halted":
        frail.halt()
    with pytest.raises(StoreUnavailable) as refused:
        PostgresStore(wrong.get(told, url))
    assert isinstance(refused.value, StoreAway) == (told == "halted")


def test_what_was_answered_survives_a_crash_of_the_server(store, frail):
    run_id = store.create_run("run", {}).run_id
    store.enqueue(run_id, [request(n) for n in range(50)])
    frail.kill()
    frail.start()
    assert store.statistics(run_id).rollouts["queued"] == 50


def test_a_waiter_outlives_a_restart_of_the_server(url, frail):
    """Its listener connects anew, and nothing that was committed meanwhile is missed."""
    with PostgresStore(url) as store, PostgresStore(url) as other:
        run_id = store.create_run("run", {}).run_id
        woken = threading.Event()
        leave = store.watch(run_id, woken.set, on="queued")
        frail.halt()
        frail.start()
        woken.clear()
        other.enqueue(run_id, [request("late")])
        assert woken.wait(DEADLINE_S)
        in_the_end(lambda: len(store.claim(run_id, "w")) == 1)
        in_the_end(lambda: listening_connections(url) == 1)
        woken.clear()
        other.enqueue(run_id, [request("later")])
        assert woken.wait(DEADLINE_S)
        leave()


def listening_connections(url):
    sql = (
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and query ilike 'listen %'"
    )
    with psycopg.connect(url) as connection:
        return connection.execute(sql).fetchone()[0]


def test_one_thread_listens_while_somebody_waits_and_none_is_left_after_closing(url):
    before = set(threading.enumerate())
    with PostgresStore(url) as store:
        assert listeners() == []
        leave = [store.watch(None, lambda: None) for _ in range(3)]
        assert len(listeners()) == listening_connections(url) == 1
        for forget in leave:
            forget()
    assert listeners() == []
    assert set(threading.enumerate()) == before
    assert listening_connections(url) == 0
    with pytest.raises(StoreClosed, match="was closed"):
        store.runs()
    with pytest.raises(StoreClosed, match="was closed"):
        store.watch(None, lambda: None)


def test_more_threads_than_connections_wait_for_their_turn(store):
    run_id = store.create_run("run", {}).run_id
    threads = [
        threading.Thread(target=store.enqueue, args=(run_id, [request(n)]))
        for n in range(3 * MAX_CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert store.statistics(run_id).rollouts["queued"] == 3 * MAX_CONNECTIONS


def test_a_server_with_no_connection_left_is_told_and_open_stores_work_on(store, url):
    run_id = store.create_run("run", {}).run_id
    taken = []
    try:
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(psycopg.connect(url))
        with pytest.raises(StoreUnavailable, match="raise max_connections"):
            PostgresStore(url)
        store.enqueue(run_id, [request("task")])
        timer = threading.Timer(0.3, taken.pop().close)
        timer.start()
        (claim,) = waiting.claim_when_ready(store, run_id, "w", timeout_s=DEADLINE_S)
        timer.join()
        assert claim.rollout.input == "task"
    finally:
        for connection in taken:
            connection.close()
