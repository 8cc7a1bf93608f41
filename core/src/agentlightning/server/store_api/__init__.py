"""The store over HTTP: what :mod:`agentlightning.store.http.operations` lists, answered."""

from agentlightning.server.store_api.api import StoreApi
from agentlightning.server.store_api.limits import Limits

__all__ = ["Limits", "StoreApi"]
