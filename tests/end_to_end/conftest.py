"""Real runs on a tiny policy: everything here trains, records and serves as a user's run would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from agentlightning_transformers.tiny import build_tiny_policy, render

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def sums():
    """Rows of the smallest task there is: a prompt and its answer."""
    return [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(5)]


@pytest.fixture(scope="session")
def chats(sums):
    """The same as conversations."""
    return [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["answer"]},
            ]
        }
        for row in sums
    ]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory, chats):
    """A directory with an untrained policy whose tokenizer knows sums."""
    texts = [render(chat["messages"]) for chat in chats]
    return str(build_tiny_policy(tmp_path_factory.mktemp("policy"), texts, max_model_len=128))


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    """Work in an empty folder, with no model named by the environment."""
    for variable in ("AGENTLIGHTNING_MODEL", "OPENAI_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def example(monkeypatch):
    """Import the modules of an example as its script does."""

    def enter(name):
        folder = EXAMPLES / name
        monkeypatch.syspath_prepend(str(folder))
        for module in [path.stem for path in folder.glob("*.py")]:
            sys.modules.pop(module, None)
        return folder

    return enter
