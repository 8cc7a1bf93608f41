"""The README's numbers are those of the code, and its URLs are read as it says."""

import re
from pathlib import Path

import pytest
from agentlightning_postgres import store
from agentlightning_postgres.connection import BUSY_S, arguments_of

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
URLS = re.findall(r"^\| `(postgres[^`]+)` \|", README, re.MULTILINE)


@pytest.mark.parametrize("url", URLS)
def test_a_url_names_a_database(url):
    assert arguments_of(url)["dbname"] in {"agl", "shared"}


def test_there_are_urls_and_the_waits_and_connections_are_as_told():
    assert len(URLS) == 4
    assert f"waits up to {store._PATIENCE_S:g} seconds for that" in README
    assert f"waits up to {BUSY_S} seconds for another's" in README
    assert f"1, up to {store.MAX_CONNECTIONS} while" in README


def test_the_query_it_shows_works(new_url):
    (sql,) = re.findall(r"```sql\n(.*?)```", README, re.DOTALL)
    with store.PostgresStore(new_url()) as opened, opened._reading() as tables:
        assert tables._execute(sql).fetchall() == []
