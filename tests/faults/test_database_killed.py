"""kill -9 of PostgreSQL's processes under load: of one that serves a client, and of all at once."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from agentlightning.store.opening import open_store
from agentlightning.testing.postgres import PostgresServer
from load import Load
from nursery import Nursery
from processes import eventually
from writes import patient

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
    faults = [kill_a_session] * SESSIONS_KILLED + [crash] * CRASHES
    chance.shuffle(faults)
    with open_store(database.url) as opened:
        load = Load(nursery, database.url, patient(opened, PATIENCE_S), tmp_path)
        for fault in faults:
            load.top_up()
            time.sleep(chance.uniform(0.05, 0.3))
            fault(database, chance)
            eventually(lambda: answers(database))
            load.goes_on()
        load.end()
        load.check(kills=len(faults))


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
