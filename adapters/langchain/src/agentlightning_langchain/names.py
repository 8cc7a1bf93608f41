"""Reading LangChain's metadata and results: whose run it is, what a tool gave, where work goes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TOOL_NODE: Final = "tools"
_PREBUILT_NODES: Final = frozenset({"agent", "model", _TOOL_NODE})
_UNNAMED_GRAPH: Final = "LangGraph"


def agent_of(metadata: Mapping[str, Any] | None, graph: str | None = None) -> str | None:
    """The agent a run belongs to: its given name, else the outermost graph node it runs in.

    ``lc_agent_name`` is there on recent versions, and only for agents that were given a name. A
    checkpoint namespace is ``node:id|node of the inner graph:id``. Prebuilt agents ask their model in
    a node called ``agent`` or ``model`` and run their tools in one called ``tools``: there the name of
    the graph says more. Without one, the node of the tools is no agent.

    Args:
        metadata: of the run.
        graph: the name of the graph the run is part of.
    """
    found = metadata or {}
    if name := found.get("lc_agent_name"):
        return str(name)
    namespace = str(found.get("langgraph_checkpoint_ns") or found.get("langgraph_node") or "")
    nodes = [part.partition(":")[0] for part in namespace.split("|")]
    if nodes[0] in _PREBUILT_NODES and graph not in (None, _UNNAMED_GRAPH):
        return graph
    return next((node for node in nodes if node and node != _TOOL_NODE), None)


def plain_result(output: Any) -> Any:
    """What a tool gave: the content of a tool message, anything else as it is."""
    return getattr(output, "content", output)


def is_error(output: Any) -> bool:
    """Whether a tool message says that the tool failed."""
    return getattr(output, "status", None) == "error"


def handoff_of(output: Any) -> str | None:
    """The node a tool's ``Command`` sends the work to."""
    goto = getattr(output, "goto", None)
    return goto if isinstance(goto, str) and goto else None
