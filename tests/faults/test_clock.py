"""Wall clocks that are set end no lease and stretch none, whichever process's clock it was, and when."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time

import pytest
from agentlightning.store.opening import open_store
from agentlightning.testing.store import request
from processes import doing

HOUR_S = 3600.0
LEASE_S = 1.0

LOOK = """
say("open")
listen()
set_clock({after})
store.rollouts(RolloutQuery())
say(len(store.claim(None, "other")))
"""

TAKE_OVER = """
say("open")
listen()
set_clock({after})
began = time.monotonic()
claim, = waiting.claim_when_ready(store, None, "heir", timeout_s=30)
say(claim.key.number, time.monotonic() - began)
"""


@pytest.fixture
def queued(url):
    """A store in which one rollout with a lease of ``LEASE_S`` can be claimed."""
    with open_store(url) as store:
        run_id = store.create_run("clocks", {}).run_id
        store.enqueue(run_id, [request("task", lease_s=LEASE_S)])
        yield url


# Wrong from its start on, or set while it runs.
WRONG = [(clock, clock) for clock in (HOUR_S, -HOUR_S)] + [(0.0, HOUR_S), (0.0, -HOUR_S), (HOUR_S, 0.0)]


@pytest.mark.parametrize(("before", "after"), WRONG)
def test_a_clock_that_is_set_in_one_process_loses_no_attempt_of_another(url, before, after):
    with open_store(url) as store:
        run_id = store.create_run("clocks", {}).run_id
        store.enqueue(run_id, [request("task", lease_s=60)])
        (claim,) = store.claim(run_id, "here")
        with doing(url, LOOK.format(after=after), clock_s=before) as other:
            other.hear()
            other.tell()
            assert other.hear() == "0"
        assert store.attempts(claim.key.rollout_id)[0].status == "running"
        assert 50 < store.seconds_to_expiry() <= 60


@pytest.mark.parametrize(("before", "after"), WRONG)
def test_a_dead_workers_lease_ends_after_its_seconds_whatever_the_clocks_say(queued, before, after):
    worker = 'say(len(store.claim(None, "doomed"))); time.sleep(60)'
    with doing(queued, TAKE_OVER.format(after=after), clock_s=before) as heir:
        heir.hear()
        with doing(queued, worker, clock_s=-before) as doomed:
            assert doomed.hear() == "1"
            began = time.monotonic()
            doomed.kill()
        heir.tell()
        number, waited = heir.hear().split()
    assert number == "2"
    assert float(waited) <= LEASE_S + 1.0
    assert time.monotonic() - began >= LEASE_S * 0.95


def test_a_machine_that_starts_with_its_clock_in_the_past_ends_old_leases_in_time(queued, tmp_path):
    with open_store(queued) as store:
        assert store.claim(None, "doomed")
    file = sqlite3.connect(tmp_path / "runs.db")
    with file:  # what a file looks like to a machine that has started again
        changed = file.execute("update settings set name = 'clock:earlier' where name like 'clock:%'")
        assert changed.rowcount == 1
    file.close()
    with doing(queued, TAKE_OVER.format(after=-HOUR_S), clock_s=-HOUR_S) as heir:
        heir.hear()
        heir.tell()
        number, waited = heir.hear().split()
    assert number == "2"
    assert float(waited) <= LEASE_S + 1.0


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
    with open_store(url) as store:
        run_id = store.create_run("clocks", {}).run_id
        store.enqueue(run_id, [request("task", lease_s=60)])
        assert store.claim(run_id, "here")
        with doing(url, LOOK.format(after=0), before=command) as other:
            other.hear()
            other.tell()
            assert other.hear() == "0"
