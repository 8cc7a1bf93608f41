"""Where a store's server is, and the token to show there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from agentlightning.errors import ConfigError, Unauthorized

TOKEN_VARIABLE: Final = "AGENTLIGHTNING_STORE_TOKEN"  # noqa: S105 - a name
"""The environment variable with the token for stores behind a server."""

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """A server, and the path that its store is under (as behind a proxy), without a trailing slash."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The address as a URL; there is no secret in it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def address_of(url: str) -> Address:
    """Read ``http://host:port`` or ``https://host/path``.

    Raises:
        ConfigError: it is not the URL of a server, or there is more in it than an address. The message
            does not repeat a URL that may have a secret in it.
    """
    expected = 'expected one such as "http://127.0.0.1:8000"'
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the URL of the store cannot be read ({error}); {expected}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(f"the URL of the store names no http or https server; {expected}")
    _refuse_secrets(parts)
    address = Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path=parts.path.rstrip("/"),
    )
    _check_host(address, expected)
    return address


def token_for(url: str, given: str | None) -> str:
    """The token to show at ``url``: the one given, else the environment's.

    Raises:
        Unauthorized: there is none, or it cannot be one.
    """
    found = (os.environ.get(TOKEN_VARIABLE, "") if given is None else given).strip()
    if not found:
        raise Unauthorized(
            f"there is no token for the store {url}; set {TOKEN_VARIABLE} to the one that its server "
            "printed when it started, or to a runner's, which is made there by: agl store token"
        )
    if not (found.isascii() and found.isprintable()) or " " in found:
        raise Unauthorized(
            f"what was given as the token for the store {url} has characters that no token has; "
            "expected the one its server printed when it started, or one by: agl store token"
        )
    return found


def _check_host(address: Address, expected: str) -> None:
    """Read it once as whoever connects does, who is stricter about hosts."""
    from urllib3.exceptions import LocationParseError  # not for those who need only a constant of this
    from urllib3.util import parse_url

    try:
        parse_url(address.url)
    except LocationParseError as error:
        raise ConfigError(f"the URL of the store cannot be read ({error}); {expected}") from None


def _refuse_secrets(parts: SplitResult) -> None:
    if parts.username is not None or parts.password is not None:
        what = "a user name or a password"
    elif parts.query or parts.fragment:
        what = "something after ? or #"
    else:
        return
    raise ConfigError(
        f"the URL of the store at {parts.hostname} has {what} in it; URLs are shown and logged, so "
        "they must hold no secret, and this one needs no more than an address. Leave that out, and "
        f"give the token in the environment variable {TOKEN_VARIABLE}"
    )
