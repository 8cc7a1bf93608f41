"""What goes wrong on the server's side: said as such, logged, and nothing of its inside told."""

from __future__ import annotations

import json
import logging

import pytest
from agentlightning.errors import DamagedRecord, SchemaMismatch, StoreUnavailable
from agentlightning.store.http import operations as ops
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore


class FailingStore(MemoryStore):
    """Raises what a test says."""

    error: Exception | None = None

    def runs(self):
        if self.error is not None:
            raise self.error
        return super().runs()


@pytest.fixture
def failing(serve):
    with FailingStore() as store:
        yield serve(store)


@pytest.mark.parametrize("error", [RuntimeError("the detail"), KeyError("the detail")])
def test_a_fault_of_the_server_is_logged_and_not_told(failing, caplog, error):
    failing.store.error = error
    client = failing.client()
    with caplog.at_level(logging.ERROR, "agentlightning.server"):
        status, reply, _ = client.send(ops.RUNS.path)
    assert status == 500
    assert json.loads(reply)["error"] == "StoreError"
    assert b"detail" not in reply
    assert b"log" in reply
    assert "the detail" in caplog.text
    failing.store.error = None
    assert client.ok(ops.RUNS) == {"runs": []}


@pytest.mark.parametrize("kind", [DamagedRecord, SchemaMismatch])
def test_a_store_that_cannot_be_read_is_told_and_logged_and_not_asked_again(failing, caplog, kind):
    failing.store.error = kind("span 7 does not fit; upgrade")
    with (
        HttpStore(failing.url, token=failing.owner, retry_s=60) as client,
        caplog.at_level(logging.ERROR, "agentlightning.server"),
        pytest.raises(kind, match="span 7"),
    ):
        client.runs()
    assert caplog.text.count("span 7") == 1  # asked once
    status, _, _ = failing.client().send(ops.RUNS.path)
    assert status == 500


def test_a_store_that_cannot_be_reached_is_to_be_asked_again(failing):
    failing.store.error = StoreUnavailable("the disk is full")
    status, reply, headers = failing.client().send(ops.RUNS.path)
    assert (status, json.loads(reply)["error"]) == (503, "StoreUnavailable")
    assert int(headers["retry-after"]) >= 1
