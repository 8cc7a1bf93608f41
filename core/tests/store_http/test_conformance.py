"""A store behind a server keeps the whole contract, whatever keeps the data there."""

from contextlib import ExitStack

import pytest
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store import StoreConformance
from agentlightning.testing.store.machine import check_against_model
from agentlightning_sqlite.store import SqliteStore


class TestMemoryBehindAServer(StoreConformance):
    @pytest.fixture
    def serving(self, serve, clock):
        return serve(MemoryStore(clock=clock))

    @pytest.fixture
    def store(self, serving):
        return serving.client()

    @pytest.fixture
    def reopen(self, serving):
        return serving.client


class TestSqliteBehindAServer(StoreConformance):
    @pytest.fixture
    def serving(self, serve, clock, tmp_path):
        return serve(SqliteStore(f"sqlite:///{tmp_path / 'runs.db'}", clock=clock))

    @pytest.fixture
    def store(self, serving):
        return serving.client()

    @pytest.fixture
    def reopen(self, serving):
        return serving.client


def test_it_agrees_with_the_model(house):
    class ServedStore(HttpStore):
        """A client that ends what it is served by, for the model closes nothing else."""

        def __init__(self, clock):
            self._ending = ExitStack()
            behind = self._ending.enter_context(MemoryStore(clock=clock))
            url = self._ending.enter_context(house.serve(behind))
            super().__init__(url, token=behind.access_token("owner"))

        def close(self):
            super().close()
            self._ending.close()

    check_against_model(ServedStore, examples=10, steps=25)
