"""Serves a policy inside the trainer's own process for agentlightning, on transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlightning.plugins import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins import EngineRegistry


@hookimpl
def register_engines(registry: EngineRegistry) -> None:
    """The embedded engine."""
    registry.add(
        "transformers",
        "agentlightning_transformers.engine:TransformersEngine",
        summary="in the trainer's own process: small models, CPU, no weights to copy",
    )
