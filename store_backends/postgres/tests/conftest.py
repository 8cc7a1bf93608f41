"""One server for all tests, and an empty schema for each."""

import itertools

import psycopg
import pytest
from agentlightning.testing.postgres import PostgresServer
from agentlightning_postgres.store import PostgresStore

TABLES = "runs, states, metrics, resources, rollouts, attempts, spans, answers, workers, late_results"


@pytest.fixture(scope="session")
def server():
    with PostgresServer(settings={"max_connections": "60"}) as server:
        yield server


@pytest.fixture(scope="session")
def new_url(server):
    """Makes the URL of an empty schema: a database of its own for each would take the longest."""
    numbers = itertools.count()

    def make():
        name = f"of_test_{next(numbers)}"
        connection.execute(f"create schema {name}")
        return f"{server.url}?options=-csearch_path%3D{name}"

    with psycopg.connect(server.url, autocommit=True) as connection:
        yield make


@pytest.fixture(scope="session")
def emptied(new_url):
    """Empties the one store of the tests that do not care how its tables were made; its URL."""
    url = new_url()
    PostgresStore(url).close()

    def empty():
        connection.execute(f"truncate {TABLES}")
        return url

    with psycopg.connect(url, autocommit=True) as connection:
        yield empty


@pytest.fixture
def url(new_url):
    return new_url()


@pytest.fixture
def store(url):
    with PostgresStore(url) as store:
        yield store
