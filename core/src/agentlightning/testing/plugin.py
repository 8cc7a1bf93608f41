"""The pytest plug-in: fixtures for those who test an agent, an adapter or an algorithm.

pytest imports this module at every start where agentlightning is installed, so it imports nothing of
ours before a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentlightning.store import Store
    from agentlightning.testing.model_server import ModelServer


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """An OpenAI-compatible server on loopback, scripted by the test; its address is ``url``."""
    from agentlightning.testing.model_server import ModelServer

    with ModelServer() as server:
        yield server


@pytest.fixture
def memory_store() -> Iterator[Store]:
    """An empty store in this process."""
    from agentlightning.store.memory import MemoryStore

    store = MemoryStore("memory://")
    yield store
    store.close()
