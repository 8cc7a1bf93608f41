"""The kinds of store that are measured, and how an empty one of each is had."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import psutil
from agentlightning.store.http.client import HttpStore
from agentlightning.store.opening import open_store
from agentlightning.testing.postgres import PostgresServer

from benchmarks.store.stage import Stage


@contextmanager
def memory(_folder: Path) -> Iterator[Stage]:
    """The store in this process."""
    with open_store("memory://") as store:
        yield Stage(store, lambda: nullcontext(store))


@contextmanager
def sqlite(folder: Path) -> Iterator[Stage]:
    """One file, opened by this process alone."""
    with open_store(f"sqlite:///{folder}/store.db") as store:
        yield Stage(store, lambda: nullcontext(store), kept_bytes=_sqlite_bytes(folder / "store.db"))


def _sqlite_bytes(path: Path) -> Callable[[str], int]:
    def weigh(rollout_id: str) -> int:
        sql = "select sum(length(call)) from spans where rollout_id = ?"
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute(sql, (rollout_id,)).fetchone()[0])

    return weigh


@contextmanager
def postgres(_folder: Path) -> Iterator[Stage]:
    """A PostgreSQL of its own on loopback; like a real one it waits for the disk at each commit."""
    with PostgresServer(durable=True) as server, open_store(server.url) as store:
        yield Stage(store, lambda: nullcontext(store), kept_bytes=_postgres_bytes(server.url))


def _postgres_bytes(url: str) -> Callable[[str], int]:
    import psycopg

    def weigh(rollout_id: str) -> int:
        sql = "select sum(octet_length(call)) from spans where rollout_id = %s"
        with psycopg.connect(url) as connection:
            return int(connection.execute(sql, (rollout_id,)).fetchone()[0])

    return weigh


@contextmanager
def http_sqlite(folder: Path) -> Iterator[Stage]:
    """A server process over loopback, in front of one file; this process is all its clients."""
    path = folder / "store.db"
    program = "from agentlightning.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        program,
        "store",
        "serve",
        "--store",
        f"sqlite:///{path}",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if process.stdout is None:
            raise AssertionError("it was asked for")
        facts = json.loads(process.stdout.readline())
        client = partial(HttpStore, facts["url"], token=facts["owner_token"])
        keeper = psutil.Process(process.pid)
        try:
            with client() as store:
                yield Stage(store, client, keeper, _sqlite_bytes(path), is_remote=True)
        finally:
            process.terminate()


CASES: dict[str, Callable[[Path], AbstractContextManager[Stage]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "http_sqlite": http_sqlite,
}
