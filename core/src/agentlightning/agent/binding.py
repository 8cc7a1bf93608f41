"""From whatever a user calls an agent to one thing that runs a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agentlightning.adapter import TracerAdapter
from agentlightning.agent.injection import Parameters
from agentlightning.agent.loading import load_agent
from agentlightning.agent.resources import attempt_resources
from agentlightning.errors import AgentError
from agentlightning.records import JSON, Resources
from agentlightning.store import Claim

F = TypeVar("F", bound=Callable[..., Any])

_METHODS = ("invoke", "ainvoke", "run", "arun", "kickoff")
_MARK = "__agentlightning_agent__"
_EXPECTED = (
    "a function of the task (decorated with @agl.rollout or not), 'module:name', an object with "
    f"one of the methods {', '.join(_METHODS)}, or an agent of a framework whose adapter is installed"
)


def rollout(function: F) -> F:
    """Declare a function (sync or async) an agent; it stays the function it was.

    Its first parameter gets the task. Further ones are filled by name or annotation: a resource by
    its name, ``llm`` (its base URL is already that of this attempt), ``resources``, ``rollout``.

    Raises:
        AgentError: what is decorated can't take a task.

    Example:
        >>> @agl.rollout
        ... def answer(task, llm: agl.LLM) -> str: ...
    """
    if not inspect.isroutine(function):
        raise AgentError(f"@agl.rollout decorates a function; got {_named(function)}")
    Parameters(function)
    setattr(function, _MARK, True)
    return function


class BoundAgent:
    """An agent as the runner sees it: called with a task and the claim it is run for.

    Attributes:
        name: what to call it in messages and on the attempt's span.
        is_async: calling it gives a coroutine for certain; a sync agent may still return one.
    """

    def __init__(self, call: Callable[..., Any], parameters: Parameters, *, name: str) -> None:
        self.name = name
        self.is_async = inspect.iscoroutinefunction(call)
        self._call = call
        self._parameters = parameters

    def check(self, resources: Resources) -> None:
        """Raise the ``AgentError`` a rollout with these resources would end with."""
        self._parameters.check(resources)

    def __call__(self, task: JSON, claim: Claim) -> Any:
        """Run the agent; returns its result, or an awaitable of it.

        Raises:
            AgentError: a parameter can't be filled, or a model the run should serve is not served.
        """
        args, kwargs = self._parameters.arguments(task, attempt_resources(claim), claim.rollout)
        return self._call(*args, **kwargs)


def bind_agent(agent: object, adapters: Sequence[TracerAdapter] = ()) -> BoundAgent:
    """Make anything a user may call an agent runnable.

    A function declared with ``@agl.rollout`` is itself; of anything else the adapters are asked first
    whether it is an agent of their framework. Functions and callables get their parameters filled;
    methods of an object get the task only.

    Raises:
        AgentError: it is nothing that can be run on a task.
    """
    if isinstance(agent, str):
        agent = load_agent(agent)
    if not getattr(agent, _MARK, False):
        for adapter in adapters:
            if (call := _bind(adapter, agent)) is not None:
                return BoundAgent(call, Parameters(call, only_task=True), name=_name(agent))
    if agent is None or inspect.isclass(agent) or inspect.isawaitable(agent):
        raise AgentError(f"{_named(agent)} is no agent{_hint(agent)}; expected {_EXPECTED}")
    if callable(agent):
        return BoundAgent(agent, Parameters(agent), name=_name(agent))
    for method in _METHODS:
        if callable(call := getattr(agent, method, None)):
            return BoundAgent(call, Parameters(call, only_task=True), name=_name(agent))
    raise AgentError(f"{_named(agent)} is no agent; expected {_EXPECTED}")


def _bind(adapter: TracerAdapter, agent: object) -> Callable[[JSON], Any] | None:
    try:
        return adapter.bind(agent)
    except Exception as error:  # a plug-in's code may raise anything; it is reported, not hidden
        raise AgentError(
            f"the adapter {type(adapter).__name__} failed on {_named(agent)}: {error}"
        ) from error


def _hint(agent: object) -> str:
    if inspect.isclass(agent):
        return " but a class: pass an instance of it"
    return (
        " but the result of calling an async function: pass the function" if agent is not None else ""
    )


def _name(agent: object) -> str:
    """A name for the attempt's span: the object's own where it has one."""
    for attribute in ("__qualname__", "name"):
        if isinstance(name := getattr(agent, attribute, None), str) and name:
            return name
    return type(agent).__qualname__


def _named(agent: object) -> str:
    return "None" if agent is None else f"{_name(agent)!r} ({type(agent).__name__})"
