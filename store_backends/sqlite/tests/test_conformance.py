import itertools

import pytest
from agentlightning.testing.store import StoreConformance
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


def test_it_agrees_with_the_model(tmp_path):
    numbers = itertools.count()
    check_against_model(
        lambda clock: SqliteStore(f"sqlite:///{tmp_path}/{next(numbers)}.db", clock=clock),
        examples=15,
        steps=30,
    )
