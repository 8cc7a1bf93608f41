"""Where the store's API is found within the application."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound, Route
from starlette.types import Receive, Scope, Send

from agentlightning.server.store_api import StoreApi
from agentlightning.server.store_api.traces import PATH as TRACES
from agentlightning.server.store_api.traces import Traces
from agentlightning.store.http.operations import PREFIX


class _Operations(BaseRoute):
    """Everything under the store's prefix, without a pattern to match for each operation."""

    def __init__(self, api: StoreApi) -> None:
        self._api = api

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_ours = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        return (Match.FULL if is_ours else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api(scope, receive, send)


def store_routes(api: StoreApi) -> Sequence[BaseRoute]:
    """The routes that answer for the store."""

    @functools.cache
    def document() -> bytes:
        from agentlightning.server.store_api.openapi import openapi

        return openapi(api.limits)

    async def openapi_json(_request: Request) -> Response:
        return Response(document(), media_type="application/json")

    return [
        _Operations(api),
        Route("/openapi.json", openapi_json),
        Route(TRACES, Traces(api)),
    ]
