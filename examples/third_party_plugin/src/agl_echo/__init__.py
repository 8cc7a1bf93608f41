"""Records Echo agents for agentlightning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlightning import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins import AdapterRegistry


@hookimpl
def register_adapters(registry: AdapterRegistry) -> None:
    """Offer the adapter, which waits for ``echo_agents`` to be imported."""
    registry.add("echo", "agl_echo.adapter:EchoAdapter", summary="Echo agents", trigger="echo_agents")
