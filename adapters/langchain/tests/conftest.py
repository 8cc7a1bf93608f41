"""A scripted model, attempts, and the adapter installed."""

import pytest
from agentlightning.adapter import Recorder
from agentlightning.testing.model_server import ModelServer
from agentlightning.testing.recorded import RecordedAttempts
from agentlightning_langchain.adapter import LangChainAdapter
from langchain_openai import ChatOpenAI


@pytest.fixture
def server():
    with ModelServer() as running:
        yield running


@pytest.fixture
def chat(server):
    return ChatOpenAI(model="m", base_url=server.url, api_key="unused", max_retries=0)


@pytest.fixture
def recorded():
    with RecordedAttempts() as attempts:
        yield attempts


@pytest.fixture
def adapter(recorded):
    made = LangChainAdapter()
    made.install(Recorder())
    yield made
    made.uninstall()
