"""The schema of a store's file, as numbered steps that are each taken once.

A step is never changed after a release: a file remembers which it has taken. A change of the schema is
a new step at the end, with a test that a file without it is brought up to date.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from agentlightning.errors import SchemaMismatch, StoreUnavailable
from agentlightning.store.tokens import new_secret
from sqlite_utils import Database, Migrations

from agentlightning_sqlite.schema_version import SCHEMA_VERSION

Step: TypeAlias = Callable[[Database], None]

steps: dict[str, Step] = {}
_migrations = Migrations("agentlightning")


def _step(step: Step) -> Step:
    name = step.__name__.strip("_")
    steps[name] = step
    _migrations(name=name)(step)
    return step


@_step
def _001_runs(db: Database) -> None:
    """Runs, and what their algorithms keep, log and publish."""
    db.table("settings").create({"name": str, "value": bytes}, pk="name")
    db.table("settings").insert({"name": "secret", "value": new_secret()})
    db.table("runs").create(
        {
            "seq": int,
            "run_id": str,
            "name": str,
            "status": str,
            "endpoint_url": str,
            "created_at": float,
            "config": str,
        },
        pk="seq",
        not_null=("run_id", "name", "status", "created_at", "config"),
    )
    db.table("runs").create_index(["run_id"], unique=True)
    db.table("runs").create_index(["name", "status"])
    db.table("states").create({"run_id": str, "state": str}, pk="run_id")
    db.table("metrics").create(
        {"run_id": str, "step": int, "name": str, "value": float, "at": float},
        pk=("run_id", "step", "name"),
    )
    db.table("resources").create(
        {
            "run_id": str,
            "version": int,
            "candidate": int,
            "record": str,
        },
        pk=("run_id", "version"),
        not_null=("candidate", "record"),
    )


@_step
def _002_rollouts(db: Database) -> None:
    """Rollouts and attempts, with an index for every question asked while they run."""
    db.table("rollouts").create(
        {
            "seq": int,
            "rollout_id": str,
            "run_id": str,
            "group_id": str,
            "mode": str,
            "status": str,
            "priority": int,
            "attempt": int,
            "resources_version": int,
            "reward": float,
            "created_at": float,
            "finished_at": float,
            "input": str,
            "output": str,
            "config": str,
            "metadata": str,
        },
        pk="seq",
        not_null=("rollout_id", "run_id", "mode", "status", "priority", "attempt", "input"),
    )
    db.table("rollouts").create_index(["rollout_id"], unique=True)
    db.table("rollouts").create_index(["run_id", "seq"])
    db.execute(
        "create index rollouts_queued on rollouts (run_id, priority desc, seq) where status = 'queued'"
    )
    db.table("attempts").create(
        {
            "rollout_id": str,
            "number": int,
            "run_id": str,
            "status": str,
            "worker_id": str,
            "started_at": float,
            "lease_until": float,
            "finished_at": float,
            "error": str,
        },
        pk=("rollout_id", "number"),
        not_null=("run_id", "status", "worker_id", "started_at", "lease_until"),
    )
    db.execute("create index attempts_running on attempts (lease_until) where status = 'running'")


@_step
def _003_spans(db: Database) -> None:
    """Spans in order of arrival; ``call`` is the LLM call, as MessagePack."""
    db.table("spans").create(
        {
            "seq": int,
            "rollout_id": str,
            "attempt": int,
            "span_id": str,
            "parent_id": str,
            "trace_id": str,
            "kind": str,
            "name": str,
            "status": str,
            "start_ns": int,
            "end_ns": int,
            "attributes": str,
            "events": str,
            "call": bytes,
        },
        pk="seq",
        not_null=("rollout_id", "attempt", "span_id", "trace_id", "kind", "name", "attributes"),
    )
    db.table("spans").create_index(["rollout_id", "attempt", "span_id"], unique=True)


@_step
def _004_bookkeeping(db: Database) -> None:
    """Idempotency keys, workers, and counters by run; waiters of other processes read the counters."""
    db.table("answers").create(
        {"operation": str, "key": str, "fingerprint": str, "made": str},
        pk=("operation", "key"),
        not_null=("fingerprint", "made"),
    )
    db.table("workers").create(
        {"worker_id": str, "first_seen": float, "last_seen": float, "report": str},
        pk="worker_id",
        not_null=("first_seen", "last_seen", "report"),
    )
    db.table("counters").create(
        {"run_id": str, "queued": int, "over": int, "late_results": int},
        pk="run_id",
        not_null=("queued", "over", "late_results"),
        defaults={"queued": 0, "over": 0, "late_results": 0},
    )


@_step
def _005_packed_calls(db: Database) -> None:
    """Calls as the difference to an earlier one of their attempt; an index to find those quickly.

    Calls that were stored whole stay as they are, and are read. Versions before cannot read the others.
    """
    db.execute(
        "create index spans_with_call on spans (rollout_id, attempt, seq) where call is not null"
    )


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Take the steps that the file lacks, all in one transaction.

    Raises:
        SchemaMismatch: the file was written by a later version, with steps this one does not know.
        StoreUnavailable: the file is a database of something else.
    """
    db = Database(connection, recursive_triggers=False, execute_plugins=False, strict=True)
    if _lacks_nothing(db, path):
        return
    connection.execute("begin immediate")  # of several that open a new file, one makes the tables
    try:
        if not _lacks_nothing(db, path):
            _migrations.apply(db)
            connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise


def _lacks_nothing(db: Database, path: Path) -> bool:
    taken = {step.name for step in _migrations.applied(db)}
    if not taken and (tables := db.table_names()):
        raise StoreUnavailable(
            f"{path} is a database of something else (it has the tables {', '.join(tables[:5])}); "
            "choose another file for the store"
        )
    if unknown := sorted(taken - steps.keys()):
        raise SchemaMismatch(
            f"{path} was written by a later version of agentlightning-sqlite (its schema has the "
            f"steps {', '.join(unknown)}); upgrade with: pip install -U agentlightning-sqlite"
        )
    return taken == steps.keys()
