"""kill -9 of PostgreSQL's processes under load: of one that serves a client, and of all at once."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from agentlightning.store import waiting
from agentlightning.store.opening import open_store
from agentlightning.testing.postgres import PostgresServer
from journal import entries
from nursery import Nursery
from processes import eventually
from rollouts import check_runs, enqueue_ahead, ids_of, rollouts_of
from writes import patient
from written import check_answered, check_whole

WRITERS, RUNNERS, THREADS = 2, 2, 3
LEASE_S = 60.0
"""So long that no attempt is lost: whoever holds one lives, and the database is back before."""

PATIENCE_S, SOON_S = 60.0, 5.0
THREADS_OF_A_CLIENT = 8
SESSIONS_KILLED, CRASHES = 10, 3


@pytest.fixture
def nursery():
    with Nursery("runner_process", "writer", "agents", "agentlightning_postgres.store") as nursery:
        yield nursery


@pytest.fixture
def database():
    # What a killed server recovers is synced as one file system, not file by file: seconds less.
    with PostgresServer(durable=True, settings={"recovery_init_sync_method": "syncfs"}) as server:
        yield server


def test_clients_lose_nothing_and_double_nothing_while_the_database_is_killed(
    nursery, database, tmp_path, chance
):
    writes = [tmp_path / f"writes{number}" for number in range(WRITERS)]
    runs = [tmp_path / f"runs{number}" for number in range(RUNNERS)]
    with open_store(database.url) as opened:
        store = patient(opened, PATIENCE_S)
        written, run_id = (store.create_run(name, {}).run_id for name in ("written", "worked"))
        writers = [
            nursery.start("writer", database.url, written, str(journal), journal.name)
            for journal in writes
        ]
        arguments = (database.url, run_id, "agents:stepping")
        runners = [
            nursery.start("runner_process", *arguments, str(journal), str(THREADS)) for journal in runs
        ]
        enqueue_ahead(store, run_id, lease_s=LEASE_S)
        eventually(lambda: all(entries(journal) for journal in (*writes, *runs)))  # all are open
        faults = [kill_a_session] * SESSIONS_KILLED + [crash] * CRASHES
        chance.shuffle(faults)
        for fault in faults:
            enqueue_ahead(store, run_id, lease_s=LEASE_S)
            time.sleep(chance.uniform(0.05, 0.3))
            before = [len(entries(journal)) for journal in writes]
            fault(database, chance)
            eventually(lambda: answers(database))
            for journal, noted in zip(writes, before, strict=True):  # the writers go on
                eventually(lambda journal=journal, noted=noted: len(entries(journal)) > noted + 1)
        waiting.wait(opened, ids_of(rollouts_of(store, run_id)), timeout_s=60)
        store.set_run_status(run_id, "succeeded")
        assert [runner.end() for runner in runners] == [0] * RUNNERS
        for writer in writers:
            writer.kill()
        check_runs(store, run_id, runs)
        noted = [entries(journal) for journal in writes]
        for of_writer in noted:
            assert len(of_writer) > len(faults)
            check_answered(store, written, of_writer)
        check_whole(
            store, written, [entry for of_writer in noted for entry in of_writer], lives=WRITERS
        )


def test_a_client_with_many_connections_is_answered_as_soon_as_the_database_is_back(database):
    with open_store(database.url) as store, ThreadPoolExecutor(THREADS_OF_A_CLIENT) as threads:
        for _ in range(2):
            list(threads.map(lambda _: store.runs(), range(20 * THREADS_OF_A_CLIENT)))
            crash(database, None)
            began = time.monotonic()
            assert store.runs() == []
            assert time.monotonic() - began < SOON_S


def kill_a_session(database, chance):
    """Kill -9 the process that serves one of the clients; the database then restarts all."""
    with psycopg.connect(database.url) as asking:
        sql = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> %s"
        found = asking.execute(sql, (asking.info.backend_pid,)).fetchall()
    with suppress(ProcessLookupError):
        os.kill(chance.choice(found)[0], signal.SIGKILL)


def crash(database, _chance):
    """Kill -9 all processes of the database, and start it again."""
    database.kill()
    database.start()


def answers(database):
    with suppress(psycopg.OperationalError), psycopg.connect(database.url) as connection:
        return connection.execute("select 1").fetchone() == (1,)
    return False
