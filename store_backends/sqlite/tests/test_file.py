"""The file itself: where it is, what may be wrong with it, and older and newer schemas."""

import sqlite3
import subprocess
import sys

import pytest
from agentlightning.errors import ConfigError, SchemaMismatch, StoreUnavailable
from agentlightning.records import Data
from agentlightning.testing.store import request, span
from agentlightning_sqlite import migrations, schema_version
from agentlightning_sqlite.schema_version import SCHEMA_VERSION
from agentlightning_sqlite.store import SqliteStore
from sqlite_utils import Database


def steps_of(path):
    rows = Database(path)["_sqlite_migrations"].rows_where("migration_set = ?", ["agentlightning"])
    return [row["name"] for row in rows]


def test_a_relative_url_is_a_file_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SqliteStore("sqlite:///runs.db") as store:
        assert store.url == f"sqlite:///{tmp_path}/runs.db"
    assert (tmp_path / "runs.db").is_file()


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite://runs.db", "sqlite:///runs.db?mode=ro", "sqlite:///:memory:"],
)
def test_a_url_that_names_no_file_is_refused(url):
    with pytest.raises(ConfigError, match=r"sqlite:///runs\.db"):
        SqliteStore(url)


def test_the_file_is_shared_through_a_log_and_waits_for_others(tmp_path):
    with SqliteStore(f"sqlite:///{tmp_path}/runs.db"):
        other = sqlite3.connect(tmp_path / "runs.db")
        assert other.execute("pragma journal_mode").fetchone() == ("wal",)
        other.close()


def test_a_file_that_is_not_a_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("These are my notes, and nobody shall write over them. " * 50)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"notes\.txt.*another kind of file"):
        SqliteStore(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("create table customers (id integer)")
    other.close()
    with pytest.raises(StoreUnavailable, match="customers"):
        SqliteStore(f"sqlite:///{path}")
    assert Database(path).table_names() == ["customers"]


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(StoreUnavailable, match=f"no folder {tmp_path}/missing"):
        SqliteStore(f"sqlite:///{tmp_path}/missing/runs.db")


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreUnavailable, match=r"folder\.db.*may you not write there"):
        SqliteStore(f"sqlite:///{tmp_path}/folder.db")


def test_every_step_is_recorded_once(tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db"
    for _ in range(2):
        SqliteStore(url).close()
    assert steps_of(tmp_path / "runs.db") == list(migrations.steps)


def test_a_current_file_is_opened_without_the_steps(tmp_path):
    """sqlite-utils imports pandas where it can, which a worker process has no use for."""
    url = f"sqlite:///{tmp_path}/current.db"
    SqliteStore(url).close()
    assert len(migrations.steps) == SCHEMA_VERSION
    opening = (
        "import sys; from agentlightning_sqlite.store import SqliteStore; "
        f"SqliteStore({url!r}).close(); print('sqlite_utils' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", opening], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_a_file_of_an_older_version_is_brought_up_to_date(tmp_path):
    """The file has the first three steps and data; opening it adds the fourth and loses nothing."""
    path = tmp_path / "old.db"
    with SqliteStore(f"sqlite:///{path}") as store:
        claim = store.begin("local", request("task"), "worker")
        store.add_spans([span(claim.key)])
        token = claim.token
    old = Database(path)
    for name in ("answers", "workers", "counters"):
        old[name].drop()
    old["_sqlite_migrations"].delete_where("name = ?", ["004_bookkeeping"])
    old.execute("pragma user_version = 3")
    old.close()
    with SqliteStore(f"sqlite:///{path}") as store:
        assert steps_of(path) == list(migrations.steps)
        assert len(list(store.spans([claim.key.rollout_id]))) == 1
        assert store.check_token(claim.key, token)
        store.heartbeat("worker", [claim.key], {"still": "here"})
        assert store.workers()[0].report == {"still": "here"}


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "runs.db"
    SqliteStore(f"sqlite:///{path}").close()

    def half_done(db):
        db["later"].create({"id": int})
        raise sqlite3.OperationalError("disk I/O error")

    registered = migrations._migrations
    monkeypatch.setattr(registered, "_migrations", [*registered._migrations])
    monkeypatch.setattr(migrations, "steps", {**migrations.steps, "900_half_done": half_done})
    registered(name="900_half_done")(half_done)
    monkeypatch.setattr(schema_version, "SCHEMA_VERSION", len(migrations.steps))
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        SqliteStore(f"sqlite:///{path}")
    assert "later" not in Database(path).table_names()
    assert "900_half_done" not in steps_of(path)


def test_a_file_of_a_later_version_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "new.db"
    SqliteStore(f"sqlite:///{path}").close()
    later = Database(path)
    later["_sqlite_migrations"].insert(
        {"migration_set": "agentlightning", "name": "999_tomorrow", "applied_at": "2999-01-01"}
    )
    later.execute(f"pragma user_version = {SCHEMA_VERSION + 1}")
    later.close()
    with pytest.raises(SchemaMismatch, match=r"999_tomorrow.*pip install -U agentlightning-sqlite"):
        SqliteStore(f"sqlite:///{path}")


def test_a_transaction_that_cannot_begin_keeps_nobody_out(tmp_path):
    """Whatever ends it, once it has the lock: a damaged page, or Ctrl+C in that moment."""
    url = f"sqlite:///{tmp_path}/runs.db"
    with SqliteStore(url) as store, SqliteStore(url) as other:
        store._connection.set_authorizer(
            lambda what, *_: sqlite3.SQLITE_DENY if what == sqlite3.SQLITE_PRAGMA else sqlite3.SQLITE_OK
        )
        with pytest.raises(StoreUnavailable, match="not authorized"):
            store.create_run("fails", {})
        assert not store._connection.in_transaction
        other.create_run("others", {})
        store._connection.set_authorizer(None)
        assert [run.name for run in store.runs()] == ["others"]


def test_versions_that_were_read_are_not_all_remembered(tmp_path):
    with SqliteStore(f"sqlite:///{tmp_path}/runs.db") as store:
        run_id = store.create_run("publishes", {}).run_id
        for number in range(600):
            version = store.publish(run_id, {"data": Data(value=number)}).version
            assert store.resources(run_id, version).resources["data"].value == number
        assert len(store._tables._known.resources) < 300


def test_a_file_that_breaks_while_open_is_reported(tmp_path):
    path = tmp_path / "runs.db"
    with SqliteStore(f"sqlite:///{path}") as store:
        run_id = store.create_run("name", {}).run_id
        with sqlite3.connect(path) as other:
            other.execute("drop table counters")
        other.close()
        with pytest.raises(StoreUnavailable, match="counters"):
            store.enqueue(run_id, [request()])
        assert store.statistics is not None
        assert store.runs()[0].run_id == run_id
