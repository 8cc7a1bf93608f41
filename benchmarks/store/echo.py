"""A server that does nothing: it reads a body and sends back as many bytes as it was asked for.

``python -m benchmarks.store.echo`` prints its URL and serves until its standard input ends. It is run
as a store is, so what it does in a second is what HTTP allows here.
"""

from __future__ import annotations

import sys

from agentlightning.server.serving import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

INSTANCE = "echo"


async def echo(request: Request) -> Response:
    """``n`` bytes, once the body is read."""
    await request.body()
    return Response(b"0" * int(request.path_params["n"]), media_type="application/json")


async def health(_request: Request) -> Response:
    """What the server asks itself when it starts."""
    return JSONResponse({"instance": INSTANCE})


def main() -> None:
    """Serve until standard input ends."""
    app = Starlette(routes=[Route("/echo/{n:int}", echo, methods=["POST"]), Route("/health", health)])
    app.state.instance_id = INSTANCE
    with Server(app) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
