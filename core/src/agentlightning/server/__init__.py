"""The HTTP server: the endpoint (later the store's API and the dashboard) behind one address."""

from agentlightning.server.app import build_app
from agentlightning.server.serving import Server

__all__ = ["Server", "build_app"]
