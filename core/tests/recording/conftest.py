"""A rollout in a real store, with whatever resolver the test wants, and the seam installed."""

from __future__ import annotations

import contextlib

import msgspec
import openai
import pytest
from agentlightning.recording import seam, threads
from agentlightning.recording.attempt import attempt
from agentlightning.recording.sink import Sink
from agentlightning.records import Passthrough, RolloutRequest
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.model_server import ModelServer


class Recording:
    """Runs attempts against one store and reads back what was recorded."""

    def __init__(self, store):
        self.store = store
        self.sink = Sink(store)
        self.run = store.create_run("test", {})

    @contextlib.contextmanager
    def rollout(self, resolve=lambda info: Passthrough(reason="test"), *, endpoint_url=None, **options):
        self.store.enqueue(self.run.run_id, [RolloutRequest(input="task")])
        (claim,) = self.store.claim(self.run.run_id, "worker")
        claim = msgspec.structs.replace(claim, endpoint_url=endpoint_url)
        with attempt(claim, self.sink, resolve=resolve, **options) as context:
            yield context

    def spans(self, context, kind=None):
        self.sink.flush()
        kinds = [kind] if kind else None
        return list(self.store.spans([context.key.rollout_id], kinds=kinds))

    def calls(self, context):
        return [span.call for span in self.spans(context, "llm")]


@pytest.fixture
def recording():
    store = MemoryStore()
    made = Recording(store)
    yield made
    made.sink.close()
    store.close()


@pytest.fixture
def server():
    with ModelServer() as running:
        yield running


@pytest.fixture
def key():
    """An API key that must be found nowhere."""
    return "sk-the-users-own-secret-key"


@pytest.fixture
def client(server, key):
    """Makes clients of the scripted server."""

    def make(**options):
        return openai.OpenAI(**{"base_url": server.url, "api_key": key, "max_retries": 0, **options})

    return make


@pytest.fixture
def async_client(server, key):
    """Makes clients of the scripted server whose calls are awaited."""

    def make(**options):
        return openai.AsyncOpenAI(
            **{"base_url": server.url, "api_key": key, "max_retries": 0, **options}
        )

    return make


@pytest.fixture
def installed():
    """The seam and the thread patch, as a worker has them."""
    seam.install()
    threads.install()
    yield
    threads.uninstall()
    seam.uninstall()
