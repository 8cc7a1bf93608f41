"""The callback handler; imported only when an adapter is installed, since it needs LangChain."""

from __future__ import annotations

import functools
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agentlightning import semconv
from agentlightning.adapter import AgentToken, Recorder, SpanHandle, never_raises
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from agentlightning_langchain.names import agent_of, handoff_of, is_error, plain_result


@functools.cache
def shared_handler() -> StructureHandler:
    """The one handler of this process, hooked into LangChain when first asked for."""
    handler = StructureHandler()
    # The variable's default makes it part of every run in every thread.
    hook: ContextVar[Any] = ContextVar("agentlightning_langchain", default=handler)
    register_configure_hook(hook, inheritable=True)
    return handler


@dataclass
class _Run:
    """A run of LangChain under way.

    Attributes:
        agent: the agent at work in it.
        span: the key of the nearest span, its own or of a run around it.
        graph: the name of the outermost graph; a tool starts afresh.
        handle: its own span, if it has one.
        token: what ends its time as the current agent.
    """

    agent: str | None
    span: UUID | None
    graph: str | None = None
    handle: SpanHandle | None = None
    token: AgentToken | None = None


def _nothing() -> None:
    return None


class StructureHandler(BaseCallbackHandler):
    """Tells the recorder about agents and tools, and the seam which agent asks the model.

    ``run_inline`` makes LangChain call it in the task or thread that goes on to do the work, so that
    the current agent and span are those of the HTTP call that follows.
    """

    run_inline = True

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._enabled = 0
        self._runs: dict[UUID, _Run] = {}

    def enable(self, recorder: Recorder) -> None:
        """Record with ``recorder`` from now on; enablings are counted."""
        self._enabled += 1
        self._recorder = recorder

    def disable(self) -> None:
        """Undo one :meth:`enable`; after the last one every event is refused."""
        self._enabled -= 1
        if self._enabled == 0:
            self._recorder = None
            self._runs.clear()

    def _is_off(self) -> bool:
        return self._recorder is None

    # What LangChain asks before it calls: nothing is left of us while disabled.
    ignore_llm = ignore_chain = ignore_agent = ignore_chat_model = property(_is_off)
    ignore_retriever = ignore_retry = ignore_custom_event = property(lambda _: True)

    @never_raises(_nothing)
    def on_chain_start(
        self,
        *_: Any,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **__: Any,
    ) -> None:
        """A graph, node or chain starts; a span if it begins the work of another agent."""
        around = self._around(parent_run_id)
        graph = around.graph or name
        agent = agent_of(metadata, graph) or around.agent
        run = _Run(agent=agent, span=around.span, graph=graph)
        self._runs[run_id] = run
        if self._recorder and agent and agent != around.agent:
            run.handle = self._recorder.start(
                "agent", agent, key=run_id, parent=around.span, attributes={semconv.AGENT_NAME: agent}
            )
            run.token = self._recorder.enter_agent(agent)
            run.span = run_id

    @never_raises(_nothing)
    def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """A graph, node or chain is over."""
        self._close(run_id)

    @never_raises(_nothing)
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """A graph, node or chain failed, or hands over to another agent."""
        self._close(run_id, error)

    @never_raises(_nothing)
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **details: Any,
    ) -> None:
        """A tool is called."""
        around = self._around(parent_run_id)
        run = _Run(agent=around.agent, span=run_id)
        self._runs[run_id] = run
        name = str((serialized or {}).get("name") or details.get("name") or "tool")
        attributes = {
            semconv.TOOL_NAME: name,
            semconv.TOOL_ARGUMENTS: input_str if inputs is None else inputs,
            semconv.TOOL_CALL_ID: details.get("tool_call_id"),
        }
        if self._recorder:
            known = {key: value for key, value in attributes.items() if value is not None}
            run.handle = self._recorder.start(
                "tool", name, key=run_id, parent=around.span, attributes=known
            )

    @never_raises(_nothing)
    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """A tool returned, perhaps an error it reports as its result, or a handoff."""
        run = self._runs.get(run_id)
        if run and run.handle:
            result = plain_result(output)
            run.handle.tool_result(result)
            if handoff := handoff_of(output):
                run.handle.set({semconv.HANDOFF_TO: handoff})
            if is_error(output):
                run.handle.error(str(result))
        self._close(run_id)

    @never_raises(_nothing)
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """A tool raised."""
        self._close(run_id, error)

    @never_raises(_nothing)
    def on_chat_model_start(
        self,
        *_: Any,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **__: Any,
    ) -> None:
        """A model is asked; the call that follows in this task or thread is that agent's."""
        self._model_start(run_id, parent_run_id, metadata)

    @never_raises(_nothing)
    def on_llm_start(
        self,
        *_: Any,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **__: Any,
    ) -> None:
        """A model without chat messages is asked."""
        self._model_start(run_id, parent_run_id, metadata)

    @never_raises(_nothing)
    def on_llm_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """The model answered."""
        self._close(run_id)

    @never_raises(_nothing)
    def on_llm_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """The model call failed; the seam records why."""
        self._close(run_id)

    def _model_start(
        self, run_id: UUID, parent_run_id: UUID | None, metadata: dict[str, Any] | None
    ) -> None:
        around = self._around(parent_run_id)
        agent = agent_of(metadata, around.graph) or around.agent
        if self._recorder and agent:
            token = self._recorder.enter_agent(agent)
            self._runs[run_id] = _Run(agent=agent, span=around.span, token=token)

    def _around(self, parent_run_id: UUID | None) -> _Run:
        run = self._runs.get(parent_run_id) if parent_run_id else None
        return run or _Run(agent=None, span=None)

    def _close(self, run_id: UUID, error: BaseException | None = None) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        if run.token is not None and self._recorder:
            self._recorder.leave_agent(run.token)
        if run.handle is not None:
            if error is not None and not _is_control_flow(error):
                run.handle.error(error)
            run.handle.end()


def _is_control_flow(error: BaseException) -> bool:
    """Whether nothing failed: LangGraph moves on (a handoff, an interrupt), or nobody reads on."""
    errors = sys.modules.get("langgraph.errors")
    return isinstance(error, GeneratorExit) or (
        errors is not None and isinstance(error, errors.GraphBubbleUp)
    )
