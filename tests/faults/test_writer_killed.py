"""kill -9 of the processes that write to one SQLite file, while they write."""

from __future__ import annotations

import sqlite3
import time

import pytest
from agentlightning.store.opening import open_store
from conftest import KILLS
from fleet import Fleet
from journal import entries
from nursery import Nursery
from written import check_answered, check_whole

WRITERS = 2


@pytest.fixture
def nursery():
    with Nursery("writer", "agentlightning_sqlite.store") as nursery:
        yield nursery


def test_killed_writers_leave_every_answered_write_whole_and_once(nursery, url, tmp_path, chance):
    with open_store(url) as store:
        run_id = store.create_run("shared", {}).run_id

    def start(number):
        # Some move the log into the file all the time, so that they are killed in the midst of that too.
        environment = {"CHECKPOINT_PAGES": "20"} if chance.random() < 0.5 else {}
        arguments = (url, run_id, str(journal(number)), f"writer{number}")
        return nursery.start("writer", *arguments, environment=environment)

    def journal(number):
        return tmp_path / f"{number}.jsonl"

    def check_what_is_left_of(gone):
        check_file(tmp_path / "runs.db")
        with open_store(url) as store:
            for number in gone:
                check_answered(store, run_id, entries(journal(number)))

    writers, kills = Fleet(start, WRITERS, chance), 0
    while kills < KILLS:
        time.sleep(chance.uniform(0.02, 0.2))
        gone = writers.kill_all() if chance.random() < 0.3 else writers.kill_one()
        kills += len(gone)
        check_what_is_left_of(gone)
        writers.refill()
    check_what_is_left_of(writers.kill_all())
    noted = [entry for number in range(writers.started) for entry in entries(journal(number))]
    assert len(noted) > 10 * KILLS
    with open_store(url) as store:
        check_whole(store, run_id, noted, lives=writers.started)


def check_file(path):
    file = sqlite3.connect(path)
    assert file.execute("pragma integrity_check").fetchall() == [("ok",)]
    file.close()
