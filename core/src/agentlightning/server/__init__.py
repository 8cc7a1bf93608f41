"""The HTTP server: the endpoint and the store's API behind one address."""

from agentlightning.server.app import build_app
from agentlightning.server.serving import Server
from agentlightning.server.store_api import Limits

__all__ = ["Limits", "Server", "build_app"]
