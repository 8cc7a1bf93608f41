"""Moving a run through a server: the owner may, a runner may not."""

from __future__ import annotations

import pytest
from agentlightning.errors import Forbidden
from agentlightning.exchange import EXPORTS, IMPORTS
from agentlightning.server import Server, build_app
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import Clock, claimed, span
from agentlightning.testing.store.moving import fill, picture
from agentlightning_sqlite.store import SqliteStore


def untold(done, total):
    """A progress bar that nobody sees."""


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def laptop(tmp_path, clock):
    with SqliteStore(f"sqlite:///{tmp_path}/laptop.db", clock=clock) as store:
        yield store


@pytest.fixture
def behind(clock):
    with MemoryStore(clock=clock) as store:
        yield store


@pytest.fixture
def url(behind):
    with Server(build_app(store=behind)) as server:
        yield server.url


@pytest.mark.parametrize("format_name", ["jsonl", "parquet"])
def test_a_run_moves_to_a_server_and_back(laptop, behind, url, tmp_path, clock, format_name):
    run_id = fill(laptop, clock)
    write, read = EXPORTS[format_name].write, IMPORTS[format_name].read
    write(laptop, run_id, tmp_path / "up", untold)
    with HttpStore(url, token=behind.access_token("owner")) as server:
        read(server, tmp_path / "up", untold)
        assert picture(behind, run_id) == picture(laptop, run_id)
        write(server, run_id, tmp_path / "down", untold)
    assert read(laptop, tmp_path / "down", untold).new == 0


def test_a_run_larger_than_one_request_moves_in_several(laptop, behind, url, tmp_path):
    run_id = laptop.create_run("large", {}).run_id
    for _ in range(12):
        key = claimed(laptop, run_id).key
        text = {"text": "x" * 100_000}
        laptop.add_spans([span(key, number, attributes=text) for number in range(60)])
    EXPORTS["jsonl"].write(laptop, run_id, tmp_path / "large", untold)
    with HttpStore(url, token=behind.access_token("owner")) as server:
        imported = IMPORTS["jsonl"].read(server, tmp_path / "large", untold)
    assert imported.rows["span"] == imported.new - 1 - 2 * 12 == 720
    assert behind.statistics(run_id) == laptop.statistics(run_id)


def test_a_runners_token_moves_nothing(behind, url, clock):
    run_id = fill(behind, clock)
    with HttpStore(url, token=behind.access_token("runner", run_id)) as runner:
        with pytest.raises(Forbidden, match="export_rows is for the owner"):
            list(runner.export_rows(run_id))
        with pytest.raises(Forbidden, match="import_rows is for the owner"):
            runner.import_rows([])
