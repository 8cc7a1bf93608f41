"""Which value each parameter of an agent function gets."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from agentlightning.errors import AgentError
from agentlightning.records import LLM, Data, PromptTemplate, Resource, Resources, Rollout

_RECORDS: Mapping[str, type] = {kind.__name__: kind for kind in (LLM, PromptTemplate, Rollout, Data)}
_MISSING = object()


class Parameters:
    """The parameters of an agent function, and how they are filled.

    The first one is the task. Every other one is, in this order: ``resources`` (all of them by name)
    or ``rollout``; the resource of its name; by its annotation (or the name ``llm``) the run's only
    :class:`LLM` or :class:`PromptTemplate`; its default.

    Args:
        function: what is called.
        only_task: leave every parameter but the first alone.

    Raises:
        AgentError: the function has no parameter that could take the task.
    """

    def __init__(self, function: Callable[..., Any], *, only_task: bool = False) -> None:
        self._agent = getattr(function, "__qualname__", None) or type(function).__qualname__
        self._signature = _signature(function)
        self._wanted = _annotations(function)
        keywords = inspect.Parameter.VAR_KEYWORD
        names = [name for name, it in self._signature.parameters.items() if it.kind is not keywords]
        if not names:
            raise AgentError(f"the agent {self._agent} takes no parameter; its first one is the task")
        self._task = names[0]
        others = () if only_task else names[1:]
        self._others = [name for name in others if not self._is_variadic(name)]

    def check(self, resources: Resources) -> None:
        """Raise the ``AgentError`` that :meth:`arguments` would raise with these resources."""
        for name in self._others:
            if name != "resources" and not self._is_rollout(name):
                self._find(name, resources)

    def arguments(
        self, task: object, resources: Resources, rollout: Rollout
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The positional and named arguments of one call.

        Raises:
            AgentError: nothing fits a parameter that has no default.
        """
        values: dict[str, object] = {self._task: (task,) if self._is_variadic(self._task) else task}
        for name in self._others:
            value = self._value(name, resources, rollout)
            if value is not _MISSING:
                values[name] = value
        bound = inspect.BoundArguments(self._signature, values)
        return bound.args, bound.kwargs

    def _value(self, name: str, resources: Resources, rollout: Rollout) -> object:
        if name == "resources":
            return resources
        return rollout if self._is_rollout(name) else self._find(name, resources)

    def _find(self, name: str, resources: Resources) -> object:
        wanted = self._wanted.get(name)
        if name in resources:
            return self._checked(name, resources[name], wanted)
        if wanted is None and name == "llm":
            wanted = LLM
        if wanted in (LLM, PromptTemplate):
            fitting = [item for item in resources.values() if isinstance(item, wanted)]
            if len(fitting) == 1:
                return fitting[0]
        if self._signature.parameters[name].default is not inspect.Parameter.empty:
            return _MISSING
        raise AgentError(
            f"nothing fits the parameter {name!r} of the agent {self._agent}: the run has "
            f"{_listing(resources)}; 'resources' and 'rollout' are always there. Name the parameter "
            f"after one of these, or give it a default"
        )

    def _checked(self, name: str, resource: Resource, wanted: type | None) -> object:
        """The resource; a plain JSON value as the user gave it, unless ``Data`` is asked for."""
        if wanted is not None and not isinstance(resource, wanted):
            raise AgentError(
                f"the agent {self._agent} wants {name!r} as {wanted.__name__}, but the run's resource "
                f"of that name is {_kind(resource)}"
            )
        return resource.value if isinstance(resource, Data) and wanted is None else resource

    def _is_rollout(self, name: str) -> bool:
        return name == "rollout" or self._wanted.get(name) is Rollout

    def _is_variadic(self, name: str) -> bool:
        return self._signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C tell nothing: they get the task only
        return inspect.Signature([inspect.Parameter("task", inspect.Parameter.POSITIONAL_ONLY)])


def _annotations(function: Callable[..., Any]) -> dict[str, type]:
    """The parameters annotated with a record of ours: ``X``, ``X | None`` or ``"agl.X"``."""
    target = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        hints = typing.get_type_hints(target)
    except Exception:  # noqa: BLE001 - a name that only type checkers import; its text says enough
        hints = getattr(target, "__annotations__", {})
    return {name: kind for name, hint in hints.items() if (kind := _record_of(hint))}


def _record_of(hint: object) -> type | None:
    if isinstance(hint, str):
        names = [part.strip().rpartition(".")[2] for part in hint.split("|")]
        return next((_RECORDS[name] for name in names if name in _RECORDS), None)
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if union else (hint,)
    return next((kind for kind in _RECORDS.values() if kind in members), None)


def _listing(resources: Resources) -> str:
    return ", ".join(f"{name!r} ({_kind(item)})" for name, item in resources.items()) or "no resources"


def _kind(resource: Resource) -> str:
    return {LLM: "an LLM", PromptTemplate: "a PromptTemplate"}.get(type(resource), "JSON")
