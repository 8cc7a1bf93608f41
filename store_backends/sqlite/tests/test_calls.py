"""LLM calls in the file: older rows, writes that fail, processes that take turns."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from agentlightning.errors import DamagedRecord, StoreUnavailable
from agentlightning.records import to_msgpack
from agentlightning.testing.store import request
from agentlightning.testing.store.calls import conversation
from agentlightning_sqlite import migrations
from agentlightning_sqlite.store import SqliteStore
from msgspec.structs import replace
from sqlite_utils import Database

OLD_STEPS = ["001_runs", "002_rollouts", "003_spans", "004_bookkeeping"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def url(path):
    return f"sqlite:///{path}"


def found(store, key):
    return [replace(item, index=0) for item in store.spans([key.rollout_id], attempt=key.number)]


def sizes(path):
    with closing(sqlite3.connect(path)) as file:
        return [size for (size,) in file.execute("select length(call) from spans order by seq")]


def take_back(path, steps):
    """Make the file one that has taken only ``steps``."""
    db = Database(path)
    db.execute("drop index spans_with_call")
    for name in migrations.steps.keys() - set(steps):
        db["_sqlite_migrations"].delete_where("name = ?", [name])
    db.execute(f"pragma user_version = {len(steps)}")
    db.close()


def test_a_later_call_takes_little_more_than_what_is_new_in_it(url, path):
    with SqliteStore(url) as store:
        key = store.begin("local", request(), "worker").key
        spans = conversation(key)
        for item in spans:
            store.add_spans([item])
        plain = [len(to_msgpack(item.call)) for item in spans]
        assert sizes(path)[1] < plain[1] / 4
        assert sum(sizes(path)) < sum(plain) / 4


def test_calls_that_an_older_version_stored_whole_are_read_and_gone_on_with(url, path):
    with SqliteStore(url) as store:
        key = store.begin("local", request(), "worker").key
        spans = conversation(key)
        store.add_spans([replace(item, call=None) for item in spans[:5]])
    take_back(path, OLD_STEPS)
    with closing(sqlite3.connect(path)) as file, file:
        calls = [(to_msgpack(item.call), item.span_id) for item in spans[:5]]
        file.executemany("update spans set call = ? where span_id = ?", calls)
    with SqliteStore(url) as store:
        assert found(store, key) == spans[:5]
        store.add_spans(spans[3:])
        assert found(store, key) == spans
        assert sizes(path)[5] < len(to_msgpack(spans[5].call)) / 4


def test_a_write_that_failed_leaves_nothing_to_build_on(url, path):
    """The disk is full when the second call comes; the third builds on what is stored."""
    with SqliteStore(url) as store:
        key = store.begin("local", request(), "worker").key
        spans = conversation(key)
        store.add_spans(spans[:1])
        pages = store._connection.execute("pragma page_count").fetchone()[0]
        store._connection.execute(f"pragma max_page_count = {pages}")
        big = replace(spans[1], attributes={"text": "x" * 100_000})
        with pytest.raises(StoreUnavailable, match="make room"):
            store.add_spans([big])
        store._connection.execute(f"pragma max_page_count = {pages + 1000}")
        store.add_spans(spans[2:4])
        assert found(store, key) == [spans[0], *spans[2:4]]


def test_processes_take_turns_in_one_conversation(url):
    """Each builds on what the other has stored, and on what it remembers."""
    code = """
        import sys
        from agentlightning.records import AttemptKey
        from agentlightning.testing.store.calls import conversation
        from agentlightning_sqlite.store import SqliteStore
        spans = conversation(AttemptKey(sys.argv[2], 1))
        with SqliteStore(sys.argv[1]) as store:
            for line in sys.stdin:
                store.add_spans([spans[int(line)]])
                sys.stdout.write(line)
                sys.stdout.flush()
    """.replace("\n        ", "\n")
    with SqliteStore(url) as store:
        key = store.begin("local", request(), "worker").key
        spans = conversation(key)
        other = subprocess.Popen(
            [sys.executable, "-c", code, url, key.rollout_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for turn, item in enumerate(spans):
            if turn % 3:
                store.add_spans([item])
            else:
                other.stdin.write(f"{turn}\n")
                other.stdin.flush()
                assert other.stdout.readline() == f"{turn}\n"
        other.communicate(timeout=30)
        assert other.returncode == 0
        assert found(store, key) == spans


def test_a_file_that_was_changed_by_something_else_is_reported_not_misread(url, path):
    with SqliteStore(url) as store:
        key = store.begin("local", request(), "worker").key
        store.add_spans(conversation(key))
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("delete from spans where seq = 3")
        with pytest.raises(DamagedRecord, match="restore the store from a copy"):
            found(store, key)
