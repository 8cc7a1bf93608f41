"""Files of other releases, and of processes that were killed while they brought one up to date."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing

import pytest
from agentlightning.errors import SchemaMismatch
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store
from agentlightning.testing.store import request
from nursery import Nursery
from old_files import ROLLOUTS, STEPS, make_old_file, rows_of, version_of

OPENINGS = 40


@pytest.fixture(scope="module")
def nursery():
    with Nursery("opener", "agentlightning_sqlite.store") as nursery:
        yield nursery


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


def check_nothing_was_lost(path, before):
    """Every row is there as it was, with whatever columns were added to it."""
    after = rows_of(path)
    for table, rows in before.items():
        kept = [{name: row[name] for name in rows[0]} for row in after[table]] if rows else []
        if table == "settings":  # which also keeps the clock of whoever opened the file
            kept = [row for row in kept if not row["name"].startswith("clock:")]
        assert kept == rows


@pytest.mark.parametrize("last_step", STEPS)
def test_a_file_of_an_older_release_keeps_every_row_and_is_used_on(path, url, last_step):
    make_old_file(path, last_step)
    before = rows_of(path)
    with open_store(url) as store:
        assert version_of(path) == len(STEPS)
        check_nothing_was_lost(path, before)
        assert store.load_state("run-1") == {"step": 3}
        assert store.metrics("run-1")[0].values == {"loss": 0.5}
        old = store.rollouts(RolloutQuery(run_id="run-1")).items
        if "rollouts" in before:
            assert [rollout.reward for rollout in old] == [n / 2 for n in range(1, ROLLOUTS + 1)]
            assert store.attempts("ro-1")[0].status == "succeeded"
        if "spans" in before:
            assert len(list(store.spans([rollout.rollout_id for rollout in old]))) == ROLLOUTS
        store.enqueue("run-1", [request("new")])
        (claim,) = store.claim("run-1", "worker")
        assert claim.rollout.input == "new"


@pytest.mark.parametrize("dies_in", STEPS[1:])
def test_a_process_killed_in_a_step_leaves_the_file_as_it_was(nursery, path, url, dies_in):
    make_old_file(path, STEPS[0])
    before = rows_of(path)
    assert nursery.start("opener", url, dies_in).end() == -9
    assert version_of(path) == 1
    assert rows_of(path) == before
    open_store(url).close()
    assert version_of(path) == len(STEPS)
    check_nothing_was_lost(path, before)


def test_processes_killed_at_any_moment_of_opening_leave_a_whole_file(nursery, tmp_path, path, chance):
    made = tmp_path / "made.db"
    make_old_file(made, STEPS[2])
    shutil.copy(made, path)
    began = time.monotonic()
    assert nursery.start("opener", f"sqlite:///{path}").end() == 0
    whole_s = time.monotonic() - began
    before, versions = rows_of(made), set()
    for number in range(OPENINGS):
        path = tmp_path / f"{number}.db"
        shutil.copy(made, path)
        opening = nursery.start("opener", f"sqlite:///{path}")
        time.sleep(chance.uniform(0.0, whole_s))
        opening.kill()
        versions.add(version_of(path))
        check_nothing_was_lost(path, before)
        open_store(f"sqlite:///{path}").close()
        assert version_of(path) == len(STEPS)
        check_nothing_was_lost(path, before)
    assert versions <= {3, len(STEPS)}  # before all steps or after: what is between leaves no trace


def test_processes_that_open_an_older_file_together_bring_it_up_to_date_once(nursery, path, url):
    make_old_file(path, STEPS[0])
    before = rows_of(path)
    assert [opening.end() for opening in [nursery.start("opener", url) for _ in range(4)]] == [0] * 4
    assert version_of(path) == len(STEPS)
    check_nothing_was_lost(path, before)


def test_a_file_of_a_later_release_is_refused_and_untouched(path, url):
    make_old_file(path, STEPS[-1])
    with closing(sqlite3.connect(path)) as later:
        later.execute(
            "insert into _sqlite_migrations values (99, 'agentlightning', '999_later', '2999')"
        )
        later.execute(f"pragma user_version = {len(STEPS) + 1}")
        later.commit()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match="999_later"):
        open_store(url)
    assert path.read_bytes() == before
