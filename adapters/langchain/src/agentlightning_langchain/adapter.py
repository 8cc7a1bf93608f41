"""The adapter: LangChain's agents, their tools and who asked the model, told to the recorder.

It stands on one hook of LangChain, ``register_configure_hook``, through which a callback handler joins
every run of the process, whatever callbacks the user passes. LLM calls are recorded by the seam.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentlightning.adapter import Capability, Recorder, TracerAdapter
from agentlightning.records import JSON


class LangChainAdapter(TracerAdapter):
    """Records LangChain and LangGraph agents.

    Agents are named by ``create_agent(name=…)``, else by the graph node they run in.

    Args:
        run_async: how :meth:`bind` runs an agent: True with ``ainvoke``, False with ``invoke``. None
            (the default) takes ``invoke`` unless a node or a tool of the agent is async only.
    """

    capabilities = frozenset(
        {
            Capability.AGENT_NAMES,
            Capability.TOOLS,
            Capability.HANDOFFS,
            Capability.STREAMING,
            Capability.PROMPT_OVERRIDE,
        }
    )

    def __init__(self, *, run_async: bool | None = None) -> None:
        self._run_async = run_async
        self._installed = False

    def install(self, recorder: Recorder) -> None:
        """Record runs from now on, agents built earlier included; a second call changes nothing."""
        from agentlightning_langchain.handler import shared_handler

        if not self._installed:
            self._installed = True
            shared_handler().enable(recorder)

    def uninstall(self) -> None:
        """Record nothing any more.

        LangChain cannot forget a hook. What stays is a handler that refuses every event; installing
        again reuses it.
        """
        from agentlightning_langchain.handler import shared_handler

        if self._installed:
            self._installed = False
            shared_handler().disable()

    def bind(self, agent: object) -> Callable[[JSON], Any] | None:
        """A runnable of LangChain as ``task -> output``; None for anything else.

        A graph with messages gets the task as user message and gives the text of the last message;
        any other runnable gets the task as it is.
        """
        from agentlightning_langchain.binding import bind_runnable

        return bind_runnable(agent, run_async=self._run_async)
