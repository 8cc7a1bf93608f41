import pytest
from agentlightning.testing.store import StoreConformance
from agentlightning.testing.store.machine import check_against_model
from agentlightning_postgres.store import PostgresStore


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, url, clock):
        with PostgresStore(url, clock=clock) as store:
            yield store

    @pytest.fixture
    def reopen(self, url, clock):
        return lambda: PostgresStore(url, clock=clock)


def test_it_agrees_with_the_model(new_url):
    check_against_model(lambda clock: PostgresStore(new_url(), clock=clock), examples=8, steps=25)
