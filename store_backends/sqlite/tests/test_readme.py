"""The README's URLs lead where it says, and its numbers are those of the code."""

import re
from pathlib import Path

import pytest
from agentlightning_sqlite.connection import BUSY_S, path_of
from agentlightning_sqlite.polling import INTERVAL_S

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
URLS = re.findall(r"^\| `(sqlite:[^`]+)` \| `([^`]+)`", README, re.MULTILINE)


@pytest.mark.parametrize(("url", "file"), URLS)
def test_a_url_names_the_file_it_is_said_to(url, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert path_of(url) == tmp_path / file


def test_there_are_urls_and_the_waits_are_as_long_as_told():
    assert len(URLS) == 2
    assert f"wait up to {BUSY_S:g} seconds" in README
    assert f"within {INTERVAL_S * 1000:g} ms" in README
