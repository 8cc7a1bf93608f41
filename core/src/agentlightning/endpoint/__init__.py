"""The OpenAI-compatible endpoint an attempt talks to: it routes, records and versions every call."""

from agentlightning.endpoint.endpoint import Endpoint

__all__ = ["Endpoint"]
