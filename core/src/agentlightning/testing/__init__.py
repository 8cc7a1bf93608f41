"""For those who test an agent, an adapter or an algorithm: a scripted model server, and more.

Everything here runs on loopback and without a model. pytest imports this package at every start where
agentlightning is installed, so what is offered is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentlightning.testing.model_faults import Fault
    from agentlightning.testing.model_script import Turn
    from agentlightning.testing.model_server import ModelRequest, ModelServer, RawReply
    from agentlightning.testing.recorded import RecordedAttempts

_OFFERED = {
    "Fault": "model_faults",
    "ModelRequest": "model_server",
    "ModelServer": "model_server",
    "RawReply": "model_server",
    "RecordedAttempts": "recorded",
    "Turn": "model_script",
}

__all__ = ["Fault", "ModelRequest", "ModelServer", "RawReply", "RecordedAttempts", "Turn"]


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_OFFERED[name]}"), name)
