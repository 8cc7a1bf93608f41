"""The schema of a store's database, as numbered steps that are each taken once.

A step is never changed after a release: a database remembers which it has taken. A change of the
schema is a new step at the end, with a test that a database without it is brought up to date. The
tables lie in the schema that is first on the search path, which has to be the store's own.
"""

from __future__ import annotations

from typing import Final

import psycopg
from agentlightning.errors import SchemaMismatch, StoreUnavailable
from agentlightning.store.tokens import new_secret

_TAKEN: Final = "agentlightning_steps"
_LOCK: Final = 0x6167656E746C6967  # "agentlig": no key of another lock is the same but by chance
_SHOWN: Final = 5

# Ids are compared byte by byte (collate "C"), which is faster than by a language's rules and the same
# on every server: rows are locked in their order.
steps: Final[dict[str, str]] = {
    "001_runs": """
        create table settings (
            name text primary key,
            value bytea not null
        );
        create table runs (
            seq bigint generated always as identity primary key,
            run_id text collate "C" not null unique,
            name text not null,
            status text not null,
            endpoint_url text,
            created_at double precision not null,
            config json not null
        );
        create index runs_named on runs (name, seq) where status = 'open';
        create table states (
            run_id text collate "C" primary key,
            state json not null
        );
        create table metrics (
            seq bigint generated always as identity,
            run_id text collate "C" not null,
            step bigint not null,
            name text collate "C" not null,
            value double precision not null,
            at double precision not null,
            primary key (run_id, step, name)
        );
        create table resources (
            run_id text collate "C" not null,
            version bigint not null,
            candidate boolean not null,
            record json not null,
            primary key (run_id, version)
        );
    """,
    "002_rollouts": """
        create table rollouts (
            seq bigint generated always as identity primary key,
            rollout_id text collate "C" not null unique,
            run_id text collate "C" not null,
            group_id text,
            mode text not null,
            status text not null,
            priority bigint not null,
            attempt integer not null,
            resources_version bigint,
            reward double precision,
            created_at double precision not null,
            finished_at double precision,
            input json not null,
            output json,
            config json not null,
            metadata json not null
        );
        create index rollouts_of_run on rollouts (run_id, seq);
        create index rollouts_queued on rollouts (run_id, priority desc, seq) where status = 'queued';
        create table attempts (
            rollout_id text collate "C" not null,
            number integer not null,
            run_id text collate "C" not null,
            status text not null,
            worker_id text not null,
            started_at double precision not null,
            lease_until double precision not null,
            finished_at double precision,
            error text,
            primary key (rollout_id, number)
        );
        create index attempts_of_run on attempts (run_id);
        create index attempts_running on attempts (lease_until) where status = 'running';
    """,
    # The record has everything but the call, which is packed; both are read whole.
    "003_spans": """
        create table spans (
            seq bigint generated always as identity,
            rollout_id text collate "C" not null,
            attempt integer not null,
            span_id text collate "C" not null,
            kind text not null,
            record json not null,
            call bytea,
            primary key (rollout_id, attempt, span_id)
        );
        alter table spans alter call set storage external;
    """,
    "004_bookkeeping": """
        create table answers (
            operation text collate "C" not null,
            key text collate "C" not null,
            fingerprint text not null,
            made json not null,
            primary key (operation, key)
        );
        create table workers (
            seq bigint generated always as identity,
            worker_id text collate "C" primary key,
            first_seen double precision not null,
            last_seen double precision not null,
            report json not null
        );
        create table late_results (
            run_id text collate "C" primary key,
            count bigint not null
        );
    """,
    # Queues change all the time: dead rows at their head would be looked at by every claim.
    "005_vacuum": """
        alter table rollouts set (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 85);
        alter table attempts set (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 85);
        alter table workers set (autovacuum_vacuum_scale_factor = 0.01, fillfactor = 50);
    """,
}


def bring_up_to_date(connection: psycopg.Connection, shown: str) -> None:
    """Take the steps that the database lacks, all in one transaction.

    Raises:
        SchemaMismatch: a later version took steps that this one does not know.
        StoreUnavailable: the schema has tables of something else.
    """
    if _lacks_nothing(connection, shown):
        return
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))  # of several, one does it
        if not _lacks_nothing(connection, shown):
            _take_steps(connection)


def has_steps(connection: psycopg.Connection) -> bool:
    """Whether a store was ever opened here."""
    return _TAKEN in _tables(connection)


def secret_of(connection: psycopg.Connection) -> bytes:
    """What this database's tokens are signed with."""
    row = connection.execute("select value from settings where name = 'secret'").fetchone()
    if row is None:
        raise StoreUnavailable("the store has lost its secret: restore the table settings from a copy")
    return bytes(row[0])


def _take_steps(connection: psycopg.Connection) -> None:
    taken = _taken(connection)
    connection.execute(
        f"create table if not exists {_TAKEN} "
        "(step text primary key, taken_at timestamptz not null default now())"
    )
    for name, sql in steps.items():
        if name not in taken:
            connection.execute(sql)
            connection.execute(f"insert into {_TAKEN} (step) values (%s)", (name,))  # noqa: S608
    connection.execute(
        "insert into settings (name, value) values ('secret', %s) on conflict do nothing",
        (new_secret(),),
    )


def _lacks_nothing(connection: psycopg.Connection, shown: str) -> bool:
    taken = _taken(connection)
    if not taken and (tables := _tables(connection)):
        raise StoreUnavailable(
            f"{shown} is a database of something else (it has the tables "
            f"{', '.join(tables[:_SHOWN])}); make one for the store, or a schema of its own: "
            "…?options=-csearch_path%3Dmy_schema"
        )
    if unknown := sorted(taken - steps.keys()):
        raise SchemaMismatch(
            f"{shown} was written by a later version of agentlightning-postgres (its schema has the "
            f"steps {', '.join(unknown)}); upgrade with: pip install -U agentlightning-postgres"
        )
    return taken == steps.keys()


def _taken(connection: psycopg.Connection) -> set[str]:
    if not has_steps(connection):
        return set()
    return {name for (name,) in connection.execute(f"select step from {_TAKEN}")}  # noqa: S608


def _tables(connection: psycopg.Connection) -> list[str]:
    sql = "select tablename from pg_tables where schemaname = current_schema() order by tablename"
    return [name for (name,) in connection.execute(sql)]
