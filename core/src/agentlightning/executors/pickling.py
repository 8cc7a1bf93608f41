"""Sending a worker to another process, also when it was defined in the script that is running."""

from __future__ import annotations

import importlib.util
import io
import pickle
import sys
import types
from typing import Any

from agentlightning.errors import AgentError, AgentLightningError

SCRIPT = "__agl_main__"
"""The name under which the child imports the script, so that its main guard holds."""


def dumps(worker: object) -> bytes:
    """Pickle a worker.

    Raises:
        AgentError: it holds something that another process can't be sent.
        AgentLightningError: what the worker itself says to being sent.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(worker)
    except AgentLightningError:
        raise
    except Exception as error:  # pickling runs the __reduce__ of anything, which may raise anything
        raise AgentError(
            f"the agent can't be sent to another process ({error}). Pass it as 'module:name', or as a "
            f"function at the top level of a module, or use the executor 'threads'"
        ) from error
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Writes what the running script defines as a reference to the script's file."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.FunctionType | type) or obj.__module__ != "__main__":
            return NotImplemented
        if "<" in obj.__qualname__:  # a lambda, or a function within another
            raise pickle.PicklingError(f"{obj.__qualname__} is not at the top level of the script")
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None:
            return from_script, (spec.name, None, obj.__qualname__)
        if getattr(main, "__file__", None) is None:
            raise pickle.PicklingError(f"{obj.__qualname__} was typed in and lies in no file")
        return from_script, (SCRIPT, main.__file__, obj.__qualname__)


def from_script(module_name: str, path: str | None, qualname: str) -> object:
    """In the child: import the script once, and return what it calls ``qualname``."""
    if path is None:
        found: object = importlib.import_module(module_name)
    else:
        found = sys.modules.get(module_name) or _imported(module_name, path)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _imported(module_name: str, path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module
