"""A store behind a server keeps the whole contract, whatever keeps the data there."""

import pytest
from agentlightning.server import Server, build_app
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


class ServedStore(HttpStore):
    """A client that brings its server along, so that closing it closes all."""

    def __init__(self, behind):
        self._behind = behind
        self._server = Server(build_app(store=behind))
        super().__init__(self._server.start(), token=behind.access_token("owner"))

    def close(self):
        super().close()
        self._server.stop()
        self._behind.close()


def test_it_agrees_with_the_model():
    check_against_model(lambda clock: ServedStore(MemoryStore(clock=clock)), examples=8, steps=25)
