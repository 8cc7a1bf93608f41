"""Records LangChain and LangGraph agents for agentlightning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlightning import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins import AdapterRegistry


@hookimpl
def register_adapters(registry: AdapterRegistry) -> None:
    """Offer the adapter, which waits for ``langchain_core`` to be imported."""
    registry.add(
        "langchain",
        "agentlightning_langchain.adapter:LangChainAdapter",
        summary="LangChain and LangGraph agents",
        trigger="langchain_core",
    )
