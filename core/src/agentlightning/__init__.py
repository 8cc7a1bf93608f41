"""Train the AI agent you already have, in any framework.

Every name below is imported when it is first used, so ``import agentlightning`` costs next to nothing
and brings in no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentlightning.adapter import TracerAdapter
    from agentlightning.agent import Result, init, rollout
    from agentlightning.algorithm import Algorithm, AlgorithmContext, algorithm
    from agentlightning.config import Config
    from agentlightning.engine import Engine
    from agentlightning.errors import AgentLightningError
    from agentlightning.executor import Executor
    from agentlightning.plugins import hookimpl
    from agentlightning.recording.emit import emit
    from agentlightning.recording.emitters import (
        emit_annotation,
        emit_exception,
        emit_message,
        emit_object,
        emit_reward,
        operation,
    )
    from agentlightning.recording.propagation import trace_headers
    from agentlightning.recording.tracer import Tracer
    from agentlightning.records import LLM, Data, PromptTemplate, Rollout
    from agentlightning.store import Store
    from agentlightning.store.opening import open_store
    from agentlightning.trainer import Trainer

    __version__: str

_HOMES = {
    "AgentLightningError": "errors",
    "Algorithm": "algorithm",
    "AlgorithmContext": "algorithm",
    "Config": "config",
    "Data": "records",
    "Engine": "engine",
    "Executor": "executor",
    "LLM": "records",
    "PromptTemplate": "records",
    "Result": "agent",
    "Rollout": "records",
    "Store": "store",
    "Tracer": "recording.tracer",
    "TracerAdapter": "adapter",
    "Trainer": "trainer",
    "algorithm": "algorithm",
    "emit": "recording.emit",
    "emit_annotation": "recording.emitters",
    "emit_exception": "recording.emitters",
    "emit_message": "recording.emitters",
    "emit_object": "recording.emitters",
    "emit_reward": "recording.emitters",
    "hookimpl": "plugins.hookspecs",
    "init": "agent",
    "open_store": "store.opening",
    "operation": "recording.emitters",
    "rollout": "agent",
    "trace_headers": "recording.propagation",
}

__all__ = [
    "LLM",
    "AgentLightningError",
    "Algorithm",
    "AlgorithmContext",
    "Config",
    "Data",
    "Engine",
    "Executor",
    "PromptTemplate",
    "Result",
    "Rollout",
    "Store",
    "Tracer",
    "TracerAdapter",
    "Trainer",
    "__version__",
    "algorithm",
    "emit",
    "emit_annotation",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "hookimpl",
    "init",
    "open_store",
    "operation",
    "rollout",
    "trace_headers",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    # Importing `agentlightning.algorithm` has set the attribute `algorithm` to that module, which can
    # be called as the decorator of that name; everything else is kept here for next time.
    return globals().setdefault(name, getattr(home, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
