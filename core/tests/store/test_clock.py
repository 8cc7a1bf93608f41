"""The clock that does not jump."""

import time

import pytest
from agentlightning.store import clock
from agentlightning.store.clock import SteadyClock, machine_time
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store import request


@pytest.fixture
def wall(monkeypatch):
    """A wall clock that can be set."""
    real, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + shift[0])
    return lambda seconds: shift.__setitem__(0, seconds)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_it_goes_on_where_the_wall_clock_jumps(wall, jump_s):
    steady = SteadyClock.starting_at(time.time())
    before = steady()
    assert before == pytest.approx(time.time(), abs=1)
    wall(jump_s)
    assert before <= steady() < before + 1


def test_it_counts_the_seconds_that_pass():
    steady = SteadyClock.starting_at(1000.0)
    began, before, begun = time.monotonic(), steady(), time.monotonic()
    time.sleep(0.05)
    ended, after, over = time.monotonic(), steady(), time.monotonic()
    assert ended - begun <= after - before + 1e-3
    assert after - before <= over - began + 1e-3
    assert before == pytest.approx(1000.0, abs=0.5)


def test_two_clocks_of_one_start_agree():
    one = SteadyClock.starting_at(5000.0)
    other = SteadyClock(one.booted_at)
    assert one() <= other() <= one()


def test_the_seconds_since_the_start_go_with_its_id():
    (boot_id, first), (again, second) = machine_time(), machine_time()
    assert boot_id == again
    assert 0 < first <= second < first + 1


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A ``/proc`` of the test's own."""
    monkeypatch.setattr(clock, "_PROC", tmp_path)
    caches = [clock._boot_id, clock._set_apart]
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


linux = pytest.mark.skipif(not hasattr(clock, "_set_apart"), reason="only Linux tells its starts apart")


@linux
def test_a_system_that_tells_no_starts_apart_has_seconds_all_the_same(proc):
    boot_id, seconds = machine_time()
    assert boot_id is None
    assert seconds > 0


@linux
def test_a_time_namespace_is_looked_through(proc):
    _, own = machine_time()
    clock._set_apart.cache_clear()
    (proc / "self").mkdir()
    (proc / "self/timens_offsets").write_text("monotonic 0 0\nboottime 9000 500000000\n")
    assert machine_time()[1] == pytest.approx(own - 9000.5, abs=1)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_lease_in_memory_keeps_its_length_when_the_wall_clock_jumps(wall, jump_s):
    with MemoryStore() as store:
        run_id = store.create_run("clocks", {}).run_id
        store.enqueue(run_id, [request("task", lease_s=60)])
        assert store.claim(run_id, "worker")
        wall(jump_s)
        assert 59 < store.seconds_to_expiry() <= 60
        assert store.claim(run_id, "other") == []
