"""Filling placeholders in prompts, safely: braces in JSON examples are text, attributes refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from agentlightning.errors import BadValue

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

TemplateEngine = Literal["f-string", "jinja", "poml"]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_REACHES_IN = re.compile(r"\{([A-Za-z_]\w*)(?:\.\w|\[)[^{}]*\}")


def variables(template: str, engine: TemplateEngine) -> frozenset[str]:
    """The names of the placeholders in ``template``."""
    if engine == "f-string":
        return frozenset(_PLACEHOLDER.findall(template))
    if engine == "jinja":
        return _jinja_variables(template)
    raise _unsupported(engine)


def render(template: str, engine: TemplateEngine, values: Mapping[str, object]) -> str:
    """Fill in ``values``.

    Raises:
        BadValue: a placeholder has no value, or the template reaches into a value's attributes.
    """
    needed = variables(template, engine)
    if missing := sorted(needed - values.keys()):
        raise BadValue(
            f"the prompt needs {', '.join(missing)}; given: {', '.join(sorted(values)) or 'nothing'}"
        )
    if engine == "jinja":
        return _render_jinja(template, values)
    if reach := _REACHES_IN.search(template):
        raise BadValue(
            f"the prompt has {reach.group(0)!r}; only plain names are filled in, such as "
            f"{{{reach.group(1)}}}"
        )
    return _PLACEHOLDER.sub(lambda match: str(values[match.group(1)]), template)


def _jinja_variables(template: str) -> frozenset[str]:
    environment = _jinja()
    from jinja2 import TemplateError, meta

    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(template)))
    except TemplateError as error:
        raise BadValue(f"the prompt is no valid jinja template: {error}") from error


def _render_jinja(template: str, values: Mapping[str, object]) -> str:
    environment = _jinja()
    from jinja2 import TemplateError

    try:
        return environment.from_string(template).render(**values)
    except TemplateError as error:
        raise BadValue(f"the jinja prompt could not be filled in: {error}") from error


def _jinja() -> SandboxedEnvironment:
    try:
        from jinja2 import StrictUndefined
        from jinja2.sandbox import SandboxedEnvironment
    except ImportError as error:
        raise BadValue('a prompt with engine "jinja" needs jinja2: pip install jinja2') from error
    return SandboxedEnvironment(undefined=StrictUndefined)


def _unsupported(engine: str) -> BadValue:
    return BadValue(f'prompt engine {engine!r} is not available yet; use "f-string" or "jinja"')
