"""Leases go by the database's clock, whatever the machines' own clocks show."""

import subprocess
import sys
import time

import psycopg
import pytest
from agentlightning.testing.store import request
from agentlightning_postgres import clock as clock_module
from agentlightning_postgres.clock import DatabaseClock

AHEAD = """
import sys, time
real = time.time
time.time = lambda: real() + float(sys.argv[2])
from agentlightning.records import RolloutConfig, RolloutRequest
from agentlightning_postgres.store import PostgresStore
with PostgresStore(sys.argv[1]) as store:
    claim = store.begin("local", RolloutRequest(input=0, config=RolloutConfig(lease_s=30)), "far")
    print(claim.key.rollout_id, claim.attempt.lease_until, store.seconds_to_expiry())
"""


@pytest.mark.parametrize("ahead_s", [5, -5])
def test_a_machine_whose_clock_is_five_seconds_off_ends_no_lease_and_stretches_none(
    store, url, ahead_s
):
    command = [sys.executable, "-c", AHEAD, url, str(ahead_s)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    rollout_id, lease_until, left_s = told[0], float(told[1]), float(told[2])
    assert 27 < left_s <= 30
    assert abs(store.seconds_to_expiry() - (lease_until - store._clock())) < 0.1
    (attempt,) = store.attempts(rollout_id)
    assert attempt.status == "running"


def test_a_clock_that_jumps_changes_nothing(store, monkeypatch):
    claim = store.begin("local", request(lease_s=60), "worker")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert store.attempts(claim.key.rollout_id)[0].status == "running"
    assert 50 < store.seconds_to_expiry() <= 60


def test_the_database_is_asked_once_in_a_while_and_believed(url, monkeypatch):
    """It is asked again only when the interval is over; then what it shows counts from there."""
    with psycopg.connect(url, autocommit=True) as connection:
        clock = DatabaseClock(connection)
        assert abs(clock() - time.time()) < 1  # this machine is the database's
        clock._clock.booted_at += 100
        clock.keep_right(connection)
        assert clock() - time.time() > 99
        monkeypatch.setattr(clock_module, "INTERVAL_S", 0)
        clock._ask(connection)
        clock._clock.booted_at += 100
        clock.keep_right(connection)
        assert abs(clock() - time.time()) < 1
