"""From ``"module:name"`` to the object."""

from __future__ import annotations

import importlib

from agentlightning.errors import AgentError


def load_object(reference: str) -> object:
    """Import what ``"module:name"`` refers to; the name may have dots.

    Raises:
        AgentError: the form is off, there is no such module or name, or importing it failed.
    """
    module_name, colon, path = reference.partition(":")
    if not (module_name and colon and path):
        raise AgentError(
            f"{reference!r} names no object; expected 'module:name', such as 'shop.desk:answer'"
        )
    found: object = _imported(module_name, reference)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise AgentError(
                f"{reference!r}: the module {module_name!r} has no {path!r}; check the part after "
                f"the colon"
            ) from error
    return found


def load_agent(reference: str) -> object:
    """The agent that ``"module:name"`` refers to; see :func:`load_object`."""
    return load_object(reference)


def _imported(module_name: str, reference: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise AgentError(f"{reference!r}: importing {module_name!r} failed: {error}") from error
        raise AgentError(
            f"{reference!r}: there is no module {error.name!r}; start in the folder it lies in, or "
            f"put that folder on PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything, or be a script
        raise AgentError(
            f"{reference!r}: importing {module_name!r} failed: {type(error).__name__}: {error}"
        ) from error
