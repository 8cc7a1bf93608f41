"""kill -9 of PostgreSQL's processes under load: of one that serves a client, and of all at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from statistics import fmean

import agentlightning as agl
import psycopg
import pytest
from agentlightning.algorithm import algorithm
from agentlightning.executors.threads import ThreadExecutor
from agentlightning.records import Data
from agentlightning.runner import RunnerSpec
from agentlightning.store.opening import open_store
from agentlightning.testing.postgres import PostgresServer
from agentlightning.testing.store import request
from agentlightning_postgres import store
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
    with open_store(database.url) as opened, ThreadPoolExecutor(THREADS_OF_A_CLIENT) as threads:
        for _ in range(2):
            list(threads.map(lambda _: opened.runs(), range(20 * THREADS_OF_A_CLIENT)))
            crash(database, None)
            began = time.monotonic()
            assert opened.runs() == []
            assert time.monotonic() - began < SOON_S


def test_a_training_goes_on_where_it_was_when_its_database_is_back(
    database, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(store, "_PATIENCE_S", 0.3)  # a pool waits by itself, for less than it is away
    away_s, steps = 1.5, 2

    @algorithm("outlasting")
    def train(ctx):
        for step in range(steps):
            batch = ctx.rollouts(ctx.train, key=f"step-{step}")
            next(iter(batch))  # the others are under way
            with restarted_meanwhile(database, away_s):
                ctx.publish({"note": Data(value=step)})  # without a key of its own
                ctx.log({"val/reward": fmean(result.reward for result in batch.wait())}, step)
        return ctx.resources.resources

    keys = {"algorithm": "outlasting", "model": "none/none", "runners": 4, "run_dir": str(tmp_path)}
    tasks = [{"steps": 2, "pause_s": 0.1 * number} for number in range(8)]
    result = agl.Trainer(keys, store=database.url).fit("agents:stepping", tasks)
    assert result.reward_after == 1.0
    assert "the store is back" in caplog.text
    with open_store(database.url) as opened:
        assert opened.statistics(result.run_id).rollouts["succeeded"] == steps * len(tasks)
        assert opened.resources(result.run_id, "latest").version == 1 + steps  # none was made twice
        assert len(opened.metrics(result.run_id)) == steps


def test_a_worker_that_starts_while_the_database_restarts_waits_for_it(database):
    with open_store(database.url) as opened:
        run_id = opened.create_run("restarting", {}).run_id
        opened.enqueue(run_id, [request({"steps": 1, "pause_s": 0.0})])
    spec = RunnerSpec(database.url, run_id, "agents:stepping", patience_s=PATIENCE_S)
    with restarted_meanwhile(database, 1.0), ThreadPoolExecutor(1) as threads:
        working = threads.submit(ThreadExecutor().run, spec, 1)
        eventually(lambda: answers(database))
        with open_store(database.url) as opened:
            eventually(lambda: opened.statistics(run_id).rollouts["succeeded"] == 1)
            opened.set_run_status(run_id, "succeeded")
        working.result(PATIENCE_S)


@contextmanager
def restarted_meanwhile(database, away_s):
    """The database is away when the body begins, and back some time after."""
    database.kill()
    coming = threading.Timer(away_s, database.start)
    coming.start()
    yield
    coming.join()


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
