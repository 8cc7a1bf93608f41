"""One server for all tests, and an empty database for each."""

import psycopg
import pytest
from agentlightning.testing.postgres import PostgresServer
from agentlightning_postgres.store import PostgresStore


@pytest.fixture(scope="session")
def server():
    with PostgresServer(settings={"max_connections": "60"}) as server:
        yield server


@pytest.fixture(scope="session")
def new_database(server):
    """Makes an empty database and gives its URL; quicker than starting a program for each."""
    connection = psycopg.connect(server.url, autocommit=True)
    names = iter(range(1_000_000))

    def make():
        name = f"of_test_{next(names)}"
        connection.execute(f"create database {name} strategy = file_copy")
        return server.url_of(name)

    yield make
    connection.close()


@pytest.fixture
def url(new_database):
    return new_database()


@pytest.fixture
def store(url):
    with PostgresStore(url) as store:
        yield store
