"""Checks that the SDK's private methods are what the seam expects, before it touches them."""

from __future__ import annotations

import inspect
from typing import Any, Final

_CLIENTS: Final = ("SyncAPIClient", "AsyncAPIClient")
_PARAMETERS: Final = {
    "request": {"cast_to", "options", "stream"},
    "_process_response": {"cast_to", "options", "response", "stream"},
}
_OPTIONS: Final = ("method", "url", "headers", "json_data", "extra_json")


def problems_of(base_client: Any, models: Any) -> list[str]:
    """What is not as expected, one short sentence each; empty when all is well."""
    problems = []
    for client in _CLIENTS:
        owner = getattr(base_client, client, None)
        for method, needed in _PARAMETERS.items():
            function = vars(owner).get(method) if isinstance(owner, type) else None
            if not inspect.isfunction(function):
                problems.append(f"{client} has no method {method}")
                continue
            parameters = inspect.signature(function).parameters
            if missing := needed - parameters.keys():
                problems.append(f"{client}.{method} takes no {', '.join(sorted(missing))}")
            if inspect.iscoroutinefunction(function) != client.startswith("Async"):
                problems.append(f"{client}.{method} changed between plain and coroutine function")
    options = getattr(models, "FinalRequestOptions", None)
    known = getattr(options, "model_fields", {})
    problems += [f"FinalRequestOptions has no {field}" for field in _OPTIONS if field not in known]
    return problems
