"""The store over HTTP: what goes over the wire, and the client.

``operations`` is the one list of what can be asked; the server in :mod:`agentlightning.server`
answers it, and its OpenAPI document is made from it. ``client`` has the store that asks.
"""

from agentlightning.store.http.address import TOKEN_VARIABLE

__all__ = ["TOKEN_VARIABLE"]
