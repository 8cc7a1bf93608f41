"""kill -9 of the server of a store, and a server that is away for a while: its clients go on."""

from __future__ import annotations

import os
import time

import pytest
from agentlightning.store.opening import open_store
from agentlightning.testing.store import request
from conftest import KILLS
from load import Load
from nursery import Nursery
from processes import doing, eventually
from rollouts import (
    check_runs,
    ids_of,
)
from server_process import StoreServer

TOKEN = "AGENTLIGHTNING_STORE_TOKEN"
AWAY_S = float(os.environ.get("FAULTS_AWAY_S") or 4)


@pytest.fixture
def nursery():
    modules = ("server_process", "runner_process", "writer", "agents")
    with Nursery(*modules, "agentlightning.server", "agentlightning_sqlite.store") as nursery:
        yield nursery


@pytest.fixture
def server(nursery, url, tmp_path):
    server = StoreServer(nursery, url, tmp_path)
    server.start()
    return server


def test_clients_lose_nothing_and_double_nothing_while_their_server_is_killed(
    nursery, server, url, tmp_path, chance
):
    with open_store(url) as store:
        load = Load(
            *(nursery, server.url, store, tmp_path),
            writing={TOKEN: server.owner_token},
            running={TOKEN: server.runner_token},
        )
        for _ in range(KILLS):
            load.top_up()
            time.sleep(chance.uniform(0.05, 0.3))
            server.kill()
            server.start()
        load.goes_on()
        load.end()
        server.kill()
        load.check(kills=KILLS)


WAIT = """
say("waiting")
rollouts = waiting.wait(store, {rollout_ids}, timeout_s={patience_s})
say(*(rollout.status for rollout in rollouts))
"""

CLAIM = """
say("waiting")
claim, = waiting.claim_when_ready(store, {run_id!r}, "patient", timeout_s={patience_s})
say(claim.rollout.input)
"""

AWAIT = """
import asyncio
say("waiting")
claim, = asyncio.run(waiting.claim_when_ready_async(store, {run_id!r}, "async", timeout_s={patience_s}))
say(claim.rollout.input)
"""


def test_clients_that_wait_go_on_by_themselves_when_their_server_comes_back(
    nursery, server, url, tmp_path, monkeypatch
):
    monkeypatch.setenv(TOKEN, server.owner_token)
    patience_s = AWAY_S + 60
    with open_store(url) as store:
        idle, busy, other = (store.create_run(name, {}).run_id for name in ("idle", "busy", "other"))
        # Under way when the server goes, and over before it is back.
        task = {"steps": 2, "pause_s": AWAY_S / 2}
        rollouts = store.enqueue(busy, [request(task, lease_s=patience_s)])
        arguments = (server.url, busy, "agents:stepping", str(tmp_path / "noted"), "2")
        runner = nursery.start("runner_process", *arguments, environment={TOKEN: server.runner_token})
        words = {"rollout_ids": ids_of(rollouts), "patience_s": patience_s}
        with (
            doing(server.url, WAIT.format(**words)) as waiter,
            doing(server.url, CLAIM.format(run_id=idle, **words)) as claimer,
            doing(server.url, AWAIT.format(run_id=other, **words)) as coroutine,
        ):
            for client in (waiter, claimer, coroutine):
                assert client.hear() == "waiting"
            eventually(lambda: store.statistics(busy).rollouts["running"] == 1)
            server.kill()
            time.sleep(AWAY_S)
            assert store.statistics(busy).rollouts["running"] == 1
            store.enqueue(idle, [request("for the claimer")])
            store.enqueue(other, [request("for the coroutine")])
            server.start()
            assert waiter.hear() == "succeeded"
            assert claimer.hear() == "for the claimer"
            assert coroutine.hear() == "for the coroutine"
        store.set_run_status(busy, "succeeded")
        assert runner.end() == 0
        check_runs(store, busy, [tmp_path / "noted"], steps=2)
