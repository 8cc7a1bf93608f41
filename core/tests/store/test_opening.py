import sys

import pytest
from agentlightning.cli import main
from agentlightning.config import Config
from agentlightning.errors import StoreUnavailable, UnknownName
from agentlightning.recording.tracer import Tracer
from agentlightning.store.memory import MemoryStore
from agentlightning.store.opening import DEFAULT_URL, open_existing_store, open_store, without_password


def test_memory_is_built_in():
    with open_store("memory://") as store:
        assert isinstance(store, MemoryStore)


def test_the_default_is_a_file_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("AGENTLIGHTNING_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    with open_store(DEFAULT_URL) as store:
        store.create_run("kept", {})
    assert (tmp_path / "agentlightning.db").is_file()
    with open_store() as store:
        assert [run.name for run in store.runs()] == ["kept"]


def test_whoever_names_no_store_uses_the_one_of_the_environment(tmp_path, monkeypatch, capsys):
    url = f"sqlite:///{tmp_path}/shared.db"
    monkeypatch.setenv("AGENTLIGHTNING_STORE", url)
    monkeypatch.chdir(tmp_path)
    with Tracer().trace("agent") as trace:
        pass
    with open_store() as store:
        assert store.url == url
        assert store.attempts(trace.rollout_id)
    assert Config(algorithm="any").store == url
    monkeypatch.setattr(sys, "argv", ["agl", "rollouts"])
    with pytest.raises(SystemExit):
        main()
    assert trace.rollout_id in capsys.readouterr().out
    assert not (tmp_path / "agentlightning.db").exists()


def test_who_only_reads_makes_no_file(tmp_path):
    with pytest.raises(StoreUnavailable, match="there is no store at"):
        open_existing_store(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []
    open_existing_store("memory://").close()


def test_an_unknown_scheme_is_refused_with_those_there_are():
    with pytest.raises(UnknownName, match="memory"):
        open_store("carrierpigeon://loft")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:pa55@db.example/runs", "postgresql://ada:***@db.example/runs"),
        (
            "postgresql://ada:p%40@[::1]:5432/r?sslmode=require",
            "postgresql://ada:***@[::1]:5432/r?sslmode=require",
        ),
        ("postgres://ada:un@quoted/p:w@h1,h2/runs", "postgres://ada:***@h1,h2/runs"),
        ("postgresql://ada:@db/runs", "postgresql://ada:***@db/runs"),
        ("postgresql://db/r?user=ada&password=pa55&x=1", "postgresql://db/r?user=ada&password=***&x=1"),
        ("postgresql://db/r?sslpassword=pa55", "postgresql://db/r?sslpassword=***"),
        (
            "https://ada:pa55@agents.example/store?token=t0k",
            "https://ada:***@agents.example/store?token=***",
        ),
    ],
)
def test_a_url_is_shown_without_its_secrets(url, shown):
    assert without_password(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "sqlite:///runs.db",
        "sqlite:////data/a:b@c/runs.db",
        "postgresql:///runs",
        "postgresql://db.example:5432/runs",
        "postgresql://ada@db.example/runs",
        "http://127.0.0.1:4747",
        "no url at all",
    ],
)
def test_a_url_without_secrets_is_shown_as_it_is(url):
    assert without_password(url) == url
