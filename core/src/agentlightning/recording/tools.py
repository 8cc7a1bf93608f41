"""Tools for a model: OpenAI schemas as they are, plain functions by their signature."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, Union

from agentlightning.errors import ConfigError
from agentlightning.records import JSON

_TYPES: Final[dict[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    tuple: "array",
    dict: "object",
    type(None): "null",
}


def tool_schemas(tools: Iterable[Mapping[str, Any] | Callable[..., Any]]) -> list[JSON]:
    """The ``tools`` of a chat completions request.

    Raises:
        ConfigError: this is no list, an item is neither a schema nor callable, or a literal ``...`` was
            left in.
    """
    if callable(tools) or isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise ConfigError(
            f"tools is {tools!r}; expected a list of tools: functions, or OpenAI tool schemas"
        )
    refuse_ellipsis(tools, "tools", 'a tool: a function, or a schema {"type": "function", …}')
    return [
        dict(tool) if isinstance(tool, Mapping) else _schema_of(tool, position)
        for position, tool in enumerate(tools)
    ]


def refuse_ellipsis(value: object, where: str, what_belongs: str) -> None:
    """Raise ``ConfigError`` if a literal ``...`` stands anywhere in ``value``."""
    if value is ...:
        raise ConfigError(
            f"{where} is a literal `...`, the placeholder of an example; put {what_belongs} there"
        )
    if isinstance(value, Mapping):
        for key, item in value.items():
            refuse_ellipsis(item, f"{where}[{key!r}]", what_belongs)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            refuse_ellipsis(item, f"{where}[{position}]", what_belongs)


def _schema_of(function: object, position: int) -> JSON:
    if not callable(function):
        raise ConfigError(
            f"tools[{position}] is {function!r}; expected a function, or a schema such as "
            '{"type": "function", "function": {"name": …, "parameters": …}}'
        )
    name = getattr(function, "__name__", type(function).__name__)
    hints = typing.get_type_hints(function if inspect.isroutine(function) else type(function).__call__)
    properties, required = {}, []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            continue
        properties[parameter.name] = _type_schema(hints.get(parameter.name, Any))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": (inspect.getdoc(function) or "").partition("\n\n")[0],
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def _type_schema(hint: Any) -> dict[str, JSON]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in {Union, types.UnionType}:
        return {"anyOf": [_type_schema(argument) for argument in arguments]}
    schema: dict[str, JSON] = {"type": _TYPES[origin or hint]} if (origin or hint) in _TYPES else {}
    if schema.get("type") == "array" and arguments and origin is list:
        schema["items"] = _type_schema(arguments[0])
    return schema
