import os
import pickle

import pytest
from agentlightning.errors import ConfigError, StoreUnavailable
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store import StoreConformance
from agentlightning.testing.store.machine import check_against_model


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self, clock):
        with MemoryStore("memory://", clock=clock) as store:
            yield store


def test_every_opening_is_a_store_of_its_own():
    first, second = MemoryStore(), MemoryStore()
    first.create_run("mine", {})
    assert second.runs() == []


def test_a_name_or_an_option_in_the_url_is_refused():
    with pytest.raises(ConfigError, match="memory://"):
        MemoryStore("memory://shared")


def test_it_does_not_travel_to_another_process_by_pickle():
    with pytest.raises(StoreUnavailable, match="sqlite:///"):
        pickle.dumps(MemoryStore())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_is_refused():
    store = MemoryStore()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.runs()
        except StoreUnavailable as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(child, 0)
    assert "store of one process" in message
    assert store.runs() == []


def test_it_agrees_with_the_model():
    check_against_model(lambda clock: MemoryStore(clock=clock))
