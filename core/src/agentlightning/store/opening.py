"""From a store's URL to the store."""

from __future__ import annotations

import os
import re
from typing import Final

from agentlightning.errors import StoreUnavailable
from agentlightning.plugins import plugins
from agentlightning.store.contract import Store

STORE_VARIABLE: Final = "AGENTLIGHTNING_STORE"
DEFAULT_URL: Final = "sqlite:///agentlightning.db"
"""Where runs are kept when the variable names no other store: a file in the working directory."""

_HIDDEN: Final = "***"
# To the last "@": a password that should have been quoted may have one of its own, and "/" too.
_USER_INFO: Final = re.compile(r"^([a-z][a-z0-9+.-]*://[^:/?#@]*:).*@", re.IGNORECASE | re.DOTALL)
_SECRET_OPTION: Final = re.compile(
    r"(?<=[?&])((?:ssl)?password|passwd|token|secret|api_?key)=[^&#]*", re.IGNORECASE
)


def default_url() -> str:
    """The store of everything that names none: ``AGENTLIGHTNING_STORE``, else :data:`DEFAULT_URL`."""
    return os.environ.get(STORE_VARIABLE) or DEFAULT_URL


def without_password(url: str) -> str:
    """The URL to show or to keep: ``postgresql://user:***@host/db``.

    For whatever is printed, logged, raised or written down; only the backend needs the password.
    """
    hidden = _USER_INFO.sub(rf"\1{_HIDDEN}@", url, count=1)
    return _SECRET_OPTION.sub(rf"\1={_HIDDEN}", hidden)


def open_store(url: str | None = None) -> Store:
    """Open the store at ``url``, by default :func:`default_url`; the scheme names the backend.

    ``memory://`` is built in; every other scheme is a plug-in's.

    Raises:
        UnknownName: no plug-in offers the scheme; the message lists those there are.
        StoreUnavailable: it cannot be opened; the message says why.
    """
    url = url or default_url()
    return plugins().store_backend_for(url)(url)


def open_existing_store(url: str) -> Store:
    """Open a store that something was recorded in; one that is not there is not made.

    Raises:
        UnknownName: no plug-in offers the scheme; the message lists those there are.
        StoreUnavailable: there is no such file or no store in the database, or it cannot be opened.
    """
    backend = plugins().store_backend_for(url)
    if isinstance(backend, type) and issubclass(backend, Store) and not backend.is_there(url):
        raise StoreUnavailable(
            f"there is no store at {without_password(url)}; expected the file or the database that a "
            "run was kept in"
        )
    return backend(url)
