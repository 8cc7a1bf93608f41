"""Puts the parts that answer HTTP into one application."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from agentlightning.endpoint import Endpoint


def build_app(endpoint: Endpoint, *, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The application that serves ``endpoint``, ``routes`` and ``/health``.

    ``/health`` answers with an instance id made here, so that a server can tell its own answer from
    that of somebody else's on the same port.
    """
    instance_id = uuid.uuid4().hex

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "instance": instance_id})

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await endpoint.aclose()

    app = Starlette(routes=[Route("/health", health), *endpoint.routes, *routes], lifespan=lifespan)
    app.state.instance_id = instance_id
    return app
