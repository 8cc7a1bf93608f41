"""Where the store's API is found within the application."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from agentlightning.server.store_api import StoreApi
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
    return [_Operations(api)]
