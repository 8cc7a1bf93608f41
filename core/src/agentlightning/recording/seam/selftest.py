"""Checks that what the seam patches is what it expects, before it touches it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

_SDK_CLIENTS: Final = ("SyncAPIClient", "AsyncAPIClient")
_SDK_METHODS: Final = {
    "request": {"cast_to", "options", "stream"},
    "_process_response": {"cast_to", "options", "response", "stream"},
}
_OPTIONS: Final = ("method", "url", "headers", "params", "json_data", "extra_json")

_HTTP_CLIENTS: Final = ("Client", "AsyncClient")
_HTTP_METHODS: Final = {"send": {"request", "stream", "auth"}}


def problems_of_sdk(base_client: Any, models: Any) -> list[str]:
    """What is not as expected in an SDK, one short sentence each; empty when all is well.

    Args:
        base_client: its module with the base clients.
        models: its module with the options of a request.
    """
    options = getattr(models, "FinalRequestOptions", None)
    known = getattr(options, "model_fields", {})
    missing = [f"FinalRequestOptions has no {field}" for field in _OPTIONS if field not in known]
    return [*_method_problems(base_client, _SDK_CLIENTS, _SDK_METHODS), *missing]


def problems_of_http(package: Any) -> list[str]:
    """What is not as expected in an HTTP library, one short sentence each."""
    return list(_method_problems(package, _HTTP_CLIENTS, _HTTP_METHODS))


def _method_problems(
    module: Any, clients: tuple[str, str], methods: Mapping[str, set[str]]
) -> Iterator[str]:
    for client in clients:
        owner = getattr(module, client, None)
        for method, needed in methods.items():
            function = vars(owner).get(method) if isinstance(owner, type) else None
            if not inspect.isfunction(function):
                yield f"{client} has no method {method}"
                continue
            parameters = inspect.signature(function).parameters
            if any(it.kind is it.VAR_KEYWORD for it in parameters.values()):
                continue  # somebody else's wrapper, which takes all and tells nothing
            if missing := needed - parameters.keys():
                yield f"{client}.{method} takes no {', '.join(sorted(missing))}"
            if inspect.iscoroutinefunction(function) != client.startswith("Async"):
                yield f"{client}.{method} changed between plain and coroutine function"
