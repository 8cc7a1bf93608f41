"""Puts the parts that answer HTTP into one application."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

import agentlightning
from agentlightning.endpoint import Endpoint
from agentlightning.server.store_api import Limits, StoreApi
from agentlightning.server.store_routes import store_routes
from agentlightning.store import Store


def build_app(
    endpoint: Endpoint | None = None,
    *,
    store: Store | None = None,
    limits: Limits | None = None,
    routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """The application that serves ``endpoint``, ``store``, ``routes`` and ``/health``.

    ``/health`` answers with an instance id made here, so that a server can tell its own answer from
    that of somebody else's on the same port.

    Args:
        endpoint: answers agents' LLM calls.
        store: answers runners and algorithms elsewhere, who need a token of it.
        limits: of requests to the store.
        routes: whatever else is served.
    """
    instance_id = uuid.uuid4().hex
    api = None if store is None else StoreApi(store, limits)

    async def health(_request: Request) -> Response:
        return JSONResponse(
            {"status": "ok", "instance": instance_id, "version": agentlightning.__version__}
        )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        if api is not None:
            api.open()
        yield
        if api is not None:
            api.close()
        if endpoint is not None:
            await endpoint.aclose()

    parts = [
        *(store_routes(api) if api is not None else ()),
        Route("/health", health),
        *(endpoint.routes if endpoint is not None else ()),
        *routes,
    ]
    app = Starlette(routes=parts, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.instance_id = instance_id
    app.state.before_stop = () if api is None else (api.release,)
    return app
