"""One server for all tests, and an empty schema for each."""

import itertools

import psycopg
import pytest
from agentlightning.testing.postgres import PostgresServer
from agentlightning_postgres.store import PostgresStore


@pytest.fixture(scope="session")
def server():
    with PostgresServer(settings={"max_connections": "60"}) as server:
        yield server


@pytest.fixture(scope="session")
def new_url(server):
    """Makes the URL of an empty schema: a database of its own for each would take the longest."""
    connection = psycopg.connect(server.url, autocommit=True)
    numbers = itertools.count()

    def make():
        name = f"of_test_{next(numbers)}"
        connection.execute(f"create schema {name}")
        return f"{server.url}?options=-csearch_path%3D{name}"

    yield make
    connection.close()


@pytest.fixture
def url(new_url):
    return new_url()


@pytest.fixture
def store(url):
    with PostgresStore(url) as store:
        yield store
