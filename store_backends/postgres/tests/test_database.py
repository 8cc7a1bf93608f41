"""What is opened and what is refused: schemas old and new, databases of others, hosts that are not there."""

import psycopg
import pytest
from agentlightning.errors import BadValue, ConfigError, SchemaMismatch, StoreUnavailable, UnknownRun
from agentlightning.store.opening import open_existing_store, open_store
from agentlightning.testing.store import request, span
from agentlightning_postgres import migrations
from agentlightning_postgres.store import PostgresStore


@pytest.fixture
def database(url):
    """A connection beside the store's."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def steps_of(connection):
    sql = "select step from agentlightning_steps order by step"
    return [name for (name,) in connection.execute(sql)]


def tables_of(connection):
    sql = "select tablename from pg_tables where schemaname = current_schema()"
    return {name for (name,) in connection.execute(sql)}


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_url_opens_it(url, scheme):
    with open_store(url.replace("postgresql", scheme, 1)) as store:
        assert isinstance(store, PostgresStore)


def test_every_step_is_taken_once(url, database):
    for _ in range(2):
        PostgresStore(url).close()
    assert steps_of(database) == list(migrations.steps)


def test_who_only_reads_makes_no_tables_and_is_told_that_there_is_no_store(url, database):
    with pytest.raises(StoreUnavailable, match=r"there is no store at postgresql://.*database") as told:
        open_existing_store(url)
    assert "***" in str(told.value)
    assert tables_of(database) == set()
    PostgresStore(url).close()
    open_existing_store(url).close()


def test_an_older_schema_is_brought_up_to_date(url, database):
    """The database has the first three steps and data; opening it adds the others and loses nothing."""
    with PostgresStore(url) as store:
        claim = store.begin("local", request("task"), "worker")
        store.add_spans([span(claim.key)])
    database.execute("drop table answers, workers, late_results")
    database.execute("delete from agentlightning_steps where step > '004'")
    with PostgresStore(url) as store:
        assert steps_of(database) == list(migrations.steps)
        assert len(list(store.spans([claim.key.rollout_id]))) == 1
        assert store.check_token(claim.key, claim.token)
        store.heartbeat("worker", [claim.key], {"still": "here"})
        assert store.workers()[0].report == {"still": "here"}


def test_a_step_that_fails_leaves_the_database_as_it_was(url, database, monkeypatch):
    PostgresStore(url).close()
    broken = "create table later (id integer); select 1 / 0"
    monkeypatch.setattr(migrations, "steps", {**migrations.steps, "900_broken": broken})
    with pytest.raises(StoreUnavailable, match="division by zero"):
        PostgresStore(url)
    assert "later" not in tables_of(database)
    assert "900_broken" not in steps_of(database)


def test_a_schema_of_a_later_version_is_refused_with_what_to_do(url, database):
    PostgresStore(url).close()
    database.execute("insert into agentlightning_steps (step) values ('999_tomorrow')")
    with pytest.raises(SchemaMismatch, match=r"999_tomorrow.*pip install -U agentlightning-postgres"):
        PostgresStore(url)


def test_a_database_of_something_else_is_refused_and_left_alone(url, database):
    database.execute("create table customers (id integer)")
    with pytest.raises(StoreUnavailable, match=r"customers.*a schema of its own"):
        PostgresStore(url)
    assert tables_of(database) == {"customers"}


def test_a_database_that_cannot_hold_every_text_is_refused(server):
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create database latin encoding latin1 template template0")
    with pytest.raises(StoreUnavailable, match=r"LATIN1.*encoding 'UTF8'"):
        PostgresStore(server.url_of("latin"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda url: url.replace("/postgres?", "/nowhere?"), "make it first.*createdb"),
        (lambda url: url.replace("//agentlightning:", "//agentlightning:x"), "check the user and"),
        (lambda url: "postgresql://nobody@127.0.0.1:1/runs", "does the server run"),
        (lambda url: "postgresql://nobody@no-such-host.invalid/runs", "check the host"),
    ],
)
def test_what_cannot_be_reached_is_told_with_what_to_do(url, change, told):
    with pytest.raises(StoreUnavailable, match=told):
        PostgresStore(change(url))


@pytest.mark.parametrize("tail", ["/runs", ":port/runs", "/runs?no_such_option=1"])
def test_a_url_that_cannot_be_read_is_refused_without_quoting_the_password(tail):
    with pytest.raises(ConfigError, match="%40 for @") as refused:
        PostgresStore(f"postgresql://ada:un/quoted@host{tail}")
    assert "quoted" not in str(refused.value)
    assert refused.value.__context__ is None


def test_text_that_postgresql_cannot_hold_is_kept_all_the_same(store):
    odd = 'a\0b\1c\x010000 "q" \\ 🦊'
    run = store.create_run(odd, {odd: odd}, key=odd)
    assert store.create_run(odd, {odd: odd}, key=odd) == run == store.run(run.run_id)
    store.set_endpoint(run.run_id, f"http://{odd}")
    store.log_metrics(run.run_id, 1, {odd: 1.5})
    assert store.metrics(run.run_id)[0].values == {odd: 1.5}
    rollout, _ = store.enqueue(
        run.run_id, [request({odd: 2**200}, group_id=odd, metadata={odd: odd}), request()]
    )
    claim = store.begin(odd, request(), odd)
    assert claim.run.run_id == run.run_id
    store.add_spans([span(claim.key, span_id=odd, name=odd, attributes={odd: odd})])
    (kept,) = store.spans([claim.key.rollout_id])
    assert (kept.span_id, kept.name, kept.attributes) == (odd, odd, {odd: odd})
    (first, *_) = store.claim(run.run_id, odd)
    assert first.rollout.input == {odd: 2**200} == rollout.input
    assert (first.rollout.group_id, first.attempt.worker_id) == (odd, odd)
    assert store.workers()[0].worker_id == odd
    with pytest.raises(UnknownRun):
        store.run("\ud800\0")


def test_numbers_and_names_that_do_not_fit_are_bad_values_and_harm_nothing(store):
    run_id = store.create_run("run", {}).run_id
    with pytest.raises(BadValue, match="out of range"):
        store.log_metrics(run_id, 2**70, {"loss": 1.0})
    with pytest.raises(BadValue, match="index"):
        store.create_run("run", {}, key="".join(map(chr, range(300, 20_000))))
    store.log_metrics(run_id, 2**40, {"loss": 1.0})
    assert [item.step for item in store.metrics(run_id)] == [2**40]
    assert len(store.runs()) == 1


def test_a_database_that_breaks_while_open_is_reported(store, database):
    run_id = store.create_run("name", {}).run_id
    database.execute("drop table workers")
    with pytest.raises(StoreUnavailable, match=r"workers.*emptied or replaced"):
        store.begin("name", request(), "worker")
    assert store.runs()[0].run_id == run_id
