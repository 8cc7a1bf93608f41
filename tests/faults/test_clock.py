"""Wall clocks that are set end no lease and stretch none, whichever process's clock it was, and when."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess

import pytest
from agentlightning.store.opening import open_store
from agentlightning.testing.postgres import PostgresServer
from agentlightning.testing.store import request
from nursery import Nursery
from processes import doing
from server_process import StoreServer

HOUR_S = 3600.0
LEASE_S, LONG_LEASE_S = 0.6, 4.0
TOLERANCE_S = 3.0
"""Less than two clocks are apart here."""

LOOK = """
say("open")
listen()
set_clock({after})
store.rollouts(RolloutQuery())
say(len(store.claim(None, "other")))
"""
DIE = """
began = time.monotonic()
claim, = store.claim(None, "doomed")
say(began)
time.sleep(60)
"""

TAKE_OVER = """
say("open")
listen()
set_clock({after})
began = time.monotonic()
claim, = waiting.claim_when_ready(store, None, "heir", timeout_s=30)
say(claim.key.number, time.monotonic() - began, time.monotonic())
"""


# Wrong from its start on, or set while it runs.
WRONG = [(HOUR_S, HOUR_S), (-HOUR_S, -HOUR_S), (0.0, HOUR_S), (0.0, -HOUR_S), (HOUR_S, 0.0)]
APART = [(5.0, 5.0), (-5.0, -5.0)]
CASES = [("file", *clocks) for clocks in WRONG] + [
    (place, *clocks) for place in ("server", "database") for clocks in APART
]
"""Processes that share a file, and those of several machines that share a server or a database."""


@pytest.fixture
def place(request, url):
    """The URL of a store in a file, behind a server, or in a database."""
    if request.param == "file":
        return url
    return request.getfixturevalue(f"url_of_{request.param}")


@pytest.fixture
def url_of_server(url, tmp_path, monkeypatch):
    with Nursery("server_process", "agentlightning.server", "agentlightning_sqlite.store") as nursery:
        server = StoreServer(nursery, url, tmp_path)
        server.start()
        monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", server.owner_token)
        yield server.url


@pytest.fixture(scope="module")
def database():
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url_of_database(database):
    return database.create_database()


def queue_one(url, *, lease_s):
    """A rollout that can be claimed, in a run of its own."""
    with open_store(url) as store:
        run_id = store.create_run("clocks", {}).run_id
        store.enqueue(run_id, [request("task", lease_s=lease_s)])


@pytest.mark.parametrize(("place", "before", "after"), CASES, indirect=["place"])
def test_a_clock_that_is_set_in_one_process_loses_no_attempt_of_another(place, before, after):
    queue_one(place, lease_s=LONG_LEASE_S)
    with (
        open_store(place) as store,
        doing(place, LOOK.format(after=after), clock_s=before) as other,
    ):
        other.hear()
        (claim,) = store.claim(None, "here")
        other.tell()
        assert other.hear() == "0"
        assert store.attempts(claim.key.rollout_id)[0].status == "running"
        assert 0 < store.seconds_to_expiry() <= LONG_LEASE_S


@pytest.mark.parametrize(("place", "before", "after"), CASES, indirect=["place"])
def test_a_dead_workers_lease_ends_after_its_seconds_whatever_the_clocks_say(place, before, after):
    queue_one(place, lease_s=LEASE_S)
    with doing(place, TAKE_OVER.format(after=after), clock_s=before) as heir:
        heir.hear()
        with doing(place, DIE, clock_s=-before) as doomed:
            began = float(doomed.hear())
            doomed.kill()
        heir.tell()
        number, waited, ended = heir.hear().split()
    assert number == "2"
    assert float(waited) <= LEASE_S + TOLERANCE_S
    assert float(ended) - began >= LEASE_S * 0.95  # the same seconds in all processes of a machine


def test_a_machine_that_starts_with_its_clock_in_the_past_ends_old_leases_in_time(url, tmp_path):
    queue_one(url, lease_s=LEASE_S)
    with open_store(url) as store:
        assert store.claim(None, "doomed")
    file = sqlite3.connect(tmp_path / "runs.db")
    with file:  # what a file looks like to a machine that has started again
        changed = file.execute("update settings set name = 'clock:earlier' where name like 'clock:%'")
        assert changed.rowcount == 1
    file.close()
    with doing(url, TAKE_OVER.format(after=-HOUR_S), clock_s=-HOUR_S) as heir:
        heir.hear()
        heir.tell()
        number, waited, _ = heir.hear().split()
    assert number == "2"
    assert float(waited) <= LEASE_S + TOLERANCE_S


def in_a_time_namespace():
    unshare = shutil.which("unshare")
    command = (unshare or "unshare", "--time", "--fork", "--boottime", "9000")
    works = (
        unshare and subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0
    )
    return command if works else None


def test_a_container_with_a_time_of_its_own_shares_the_files_clock(url):
    command = in_a_time_namespace()
    if command is None:
        pytest.skip("this user or kernel makes no time namespaces")
    queue_one(url, lease_s=LONG_LEASE_S)
    with open_store(url) as store, doing(url, LOOK.format(after=0), before=command) as other:
        other.hear()
        assert store.claim(None, "here")
        other.tell()
        assert other.hear() == "0"
