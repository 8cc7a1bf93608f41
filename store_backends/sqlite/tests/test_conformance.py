import itertools

import pytest
from agentlightning.testing.store import StoreConformance, request
from agentlightning.testing.store.machine import check_against_model
from agentlightning_sqlite.store import SqliteStore


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path}/runs.db"

    @pytest.fixture
    def store(self, url, clock):
        with SqliteStore(url, clock=clock) as store:
            yield store

    @pytest.fixture
    def reopen(self, url, clock):
        return lambda: SqliteStore(url, clock=clock)

    def test_what_another_opening_changes_is_seen_at_once(self, store, run_id, url, clock):
        """Runs, their resources and workers are remembered only while nobody else writes."""
        with SqliteStore(url, clock=clock) as other:
            store.enqueue(run_id, [request() for _ in range(4)])
            assert store.claim(run_id, "worker")[0].resources.version == 0
            other.publish(run_id, {"limit": 3})
            other.set_endpoint(run_id, "http://127.0.0.1:1")
            (claim,) = store.claim(run_id, "worker")
            assert claim.resources.version == 1
            assert claim.run.endpoint_url == "http://127.0.0.1:1"
            other.set_run_status(run_id, "cancelled")
            assert store.claim(run_id, "worker") == []
            other.set_run_status(run_id, "open")
            clock.advance(5)
            assert store.claim(run_id, "worker")
            assert other.workers() == store.workers()
            assert other.workers()[0].last_seen == clock.now


class TakingTurns:
    """Two openings of one file, each asked in turn: what one remembers the other has changed."""

    def __init__(self, *openings):
        self.openings = list(openings)

    def __getattr__(self, name):
        self.openings.append(self.openings.pop(0))
        return getattr(self.openings[0], name)

    def close(self):
        for opening in self.openings:
            opening.close()


def test_two_openings_agree_with_the_model(tmp_path):
    numbers = itertools.count()

    def open_twice(clock):
        url = f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return TakingTurns(SqliteStore(url, clock=clock), SqliteStore(url, clock=clock))

    check_against_model(open_twice, examples=15, steps=30)


def test_it_agrees_with_the_model(tmp_path):
    numbers = itertools.count()
    check_against_model(
        lambda clock: SqliteStore(f"sqlite:///{tmp_path}/{next(numbers)}.db", clock=clock),
        examples=15,
        steps=30,
    )
