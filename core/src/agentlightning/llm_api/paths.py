"""Which of the four protocols a URL speaks, and what of a URL may be kept."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from agentlightning.records import Api

TAILS: Final[dict[Api, str]] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "messages": "/v1/messages",
}
"""The end of each protocol's path; the order matters, ``/completions`` ends ``/chat/completions``."""

_APPENDED: Final[dict[Api, str]] = {**TAILS, "messages": "/messages"}


def api_of_path(path: str) -> Api | None:
    """The protocol of a path or URL, by its suffix; None for anything that asks no model."""
    bare = path.split("?", 1)[0].rstrip("/")
    bare = bare if "/" in bare else f"/{bare}"
    return next((api for api, tail in TAILS.items() if bare.endswith(tail)), None)


def url_for(base_url: str, api: Api) -> str:
    """The URL of a protocol below ``base_url`` (which ends in ``/v1``)."""
    return base_url.rstrip("/") + _APPENDED[api]


def base_of_url(url: str) -> str:
    """The base URL of a call's URL, without query and credentials: what a record may keep."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/")
    api = api_of_path(path)
    if api is not None:
        path = path.removesuffix(_APPENDED[api])
    return urlunsplit((parts.scheme, host, path, "", ""))


def origin_of(url: str) -> str:
    """``http://host:port`` of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def within(url: str, origin: str | None) -> bool:
    """Whether ``url`` leads to ``origin``."""
    return origin is not None and origin_of(url) == origin_of(origin)
