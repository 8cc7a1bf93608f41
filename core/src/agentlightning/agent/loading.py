"""From ``"module:name"`` to the object."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys

from agentlightning.errors import AgentError


def load_object(reference: str) -> object:
    """Import what ``"module:name"`` refers to; the name may have dots.

    Raises:
        AgentError: the form is off, there is no such module or name, or importing it failed.
    """
    module_name, path = _parts(reference)
    found: object = _imported(module_name, reference)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise AgentError(
                f"{reference!r}: the module {module_name!r} has no {path!r}"
                f"{_nearest(part, found)}; check the part after the colon"
            ) from error
    return found


def load_agent(reference: str) -> object:
    """The agent that ``"module:name"`` refers to; see :func:`load_object`."""
    return load_object(reference)


def reference_to(found: object) -> str | None:
    """The ``"module:name"`` that another process finds it by; None if there is none.

    What the running script defines has none: elsewhere that module is another program.
    """
    module_name, path = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not isinstance(module_name, str) or not isinstance(path, str) or module_name == "__main__":
        return None
    there: object = sys.modules.get(module_name)
    for part in path.split("."):
        there = getattr(there, part, None)
    return f"{module_name}:{path}" if there is found else None


def require_module(reference: str) -> None:
    """Make sure that what ``"module:name"`` refers to can be looked for; nothing of it is imported.

    Raises:
        AgentError: the form is off, or there is no such module.
    """
    package = _parts(reference)[0].partition(".")[0]
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        raise _no_module(reference, package)


def _parts(reference: str) -> tuple[str, str]:
    module_name, colon, path = reference.partition(":")
    if not (module_name and colon and path):
        raise AgentError(
            f"{reference!r} names no object; expected 'module:name', such as 'shop.desk:answer'"
        )
    return module_name, path


def _nearest(name: str, holder: object) -> str:
    nearest = difflib.get_close_matches(name, dir(holder), n=1)
    return f", did you mean {nearest[0]!r}?" if nearest else ""


def _no_module(reference: str, name: str | None) -> AgentError:
    return AgentError(
        f"{reference!r}: there is no module {name!r}; start in the folder it lies in, or put that "
        "folder on PYTHONPATH"
    )


def _imported(module_name: str, reference: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise AgentError(f"{reference!r}: importing {module_name!r} failed: {error}") from error
        raise _no_module(reference, error.name) from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything, or be a script
        raise AgentError(
            f"{reference!r}: importing {module_name!r} failed: {type(error).__name__}: {error}"
        ) from error
