import pytest
from agentlightning.testing.store import StoreConformance
from agentlightning.testing.store.machine import check_against_model
from agentlightning_postgres.store import PostgresStore


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def url(self, emptied):
        return emptied()

    @pytest.fixture
    def store(self, url, clock):
        with PostgresStore(url, clock=clock) as store:
            yield store

    @pytest.fixture
    def reopen(self, url, clock):
        return lambda: PostgresStore(url, clock=clock)


def test_it_agrees_with_the_model(emptied):
    check_against_model(lambda clock: PostgresStore(emptied(), clock=clock), examples=10, steps=25)
