"""Whose key goes along with a call: the route's, and never the caller's to another server."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from agentlightning.recording.open_call import OpenCall

AUTH_HEADERS: Final = ("Authorization", "api-key", "x-api-key")
"""The headers in which OpenAI, Azure and Anthropic take keys."""


def key_headers(call: OpenCall) -> dict[str, str]:
    """The headers with the route's key, for another server than the client's own."""
    key = call.outgoing.api_key
    if key is None:
        return {}
    bearer = {"Authorization": f"Bearer {key}"}
    # Some servers of the Messages API know the one header, some the other; our endpoint knows both.
    both = call.api == "messages" and not call.outgoing.by_endpoint
    return {**bearer, "x-api-key": key} if both else bearer


def withheld(call: OpenCall) -> list[str]:
    """The headers of the caller's that must not go along; those that the route itself names may."""
    if not call.outgoing.drop_auth:
        return []
    named = {name.lower() for name in call.outgoing.headers}
    return [name for name in AUTH_HEADERS if name.lower() not in named]


def set_credentials(headers: MutableMapping[str, str], call: OpenCall) -> None:
    """Put the right key into the headers of a request that is about to leave.

    At the client's own server the route's key takes the place of the client's, in whichever header
    that server takes it. ``headers`` know no case.
    """
    replaced = withheld(call)
    if not replaced and call.outgoing.api_key is not None:
        held = [name for name in AUTH_HEADERS if name in headers]
        for name in held:
            bearer = name == "Authorization"
            headers[name] = f"Bearer {call.outgoing.api_key}" if bearer else call.outgoing.api_key
        if held:
            return
    wanted = key_headers(call)
    for name in replaced:
        if name in headers and name not in wanted:
            del headers[name]
    headers.update(wanted)
