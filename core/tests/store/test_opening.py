import sys

import pytest
from agentlightning.cli import main
from agentlightning.config import Config
from agentlightning.errors import UnknownName
from agentlightning.recording.tracer import Tracer
from agentlightning.store.memory import MemoryStore
from agentlightning.store.opening import DEFAULT_URL, open_store


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


def test_an_unknown_scheme_is_refused_with_those_there_are():
    with pytest.raises(UnknownName, match="memory"):
        open_store("carrierpigeon://loft")
