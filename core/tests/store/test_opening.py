import pytest
from agentlightning.errors import UnknownName
from agentlightning.store.memory import MemoryStore
from agentlightning.store.opening import DEFAULT_URL, open_store


def test_memory_is_built_in():
    with open_store("memory://") as store:
        assert isinstance(store, MemoryStore)


def test_the_default_is_a_file_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_store(DEFAULT_URL) as store:
        store.create_run("kept", {})
    assert (tmp_path / "agentlightning.db").is_file()
    with open_store() as store:
        assert [run.name for run in store.runs()] == ["kept"]


def test_an_unknown_scheme_is_refused_with_those_there_are():
    with pytest.raises(UnknownName, match="memory"):
        open_store("carrierpigeon://loft")
