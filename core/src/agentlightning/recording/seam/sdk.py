"""Between an SDK's request options and our calls: what the patched methods of its clients do."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agentlightning.llm_api import api_of_path, request_messages, within
from agentlightning.recording.context import RolloutContext, current_agent, current_rollout
from agentlightning.recording.guard import never_raises
from agentlightning.recording.open_call import OpenCall, open_call
from agentlightning.recording.patching import Patch
from agentlightning.recording.seam.credentials import key_headers, withheld
from agentlightning.recording.seam.streams import received
from agentlightning.recording.seam.under_way import UnderWay, call_under_way, decided
from agentlightning.recording.stand_in import STAND_IN, missing_key
from agentlightning.records import CallInfo


class SdkSeam:
    """The seam of one SDK: of openai, anthropic, or another one made by the same generator.

    Args:
        package: its top module.
        types: its module with the sentinels for "not given" and "left out".
    """

    def __init__(self, package: Any, types: Any) -> None:
        self._client = f"{package.__name__} {package.__version__}"
        self._left_out: type = types.Omit
        self._absent: tuple[type, ...] = (types.Omit, types.NotGiven)

    def patches(self, base_client: Any) -> list[Patch]:
        """The patches of the base clients, not applied yet."""
        sync, asynchronous = base_client.SyncAPIClient, base_client.AsyncAPIClient
        return [
            Patch(sync, "request", self._request),
            Patch(sync, "_process_response", _process_response),
            Patch(asynchronous, "request", self._request_async),
            Patch(asynchronous, "_process_response", _process_response_async),
        ]

    def _request(
        self, original: Any, client: Any, cast_to: Any, options: Any, *args: Any, **more: Any
    ) -> Any:
        call, sent = self._begin(client, options)
        if call is None:
            return original(client, cast_to, options, *args, **more)
        with UnderWay(call):
            return original(client, cast_to, sent, *args, **more)

    async def _request_async(
        self, original: Any, client: Any, cast_to: Any, options: Any, *args: Any, **more: Any
    ) -> Any:
        call, sent = self._begin(client, options)
        if call is None:
            return await original(client, cast_to, options, *args, **more)
        with UnderWay(call):
            return await original(client, cast_to, sent, *args, **more)

    def _begin(self, client: Any, options: Any) -> tuple[OpenCall | None, Any]:
        """Open a call and say what to send; None for what is no LLM call of a rollout.

        No request leaves with the key that stands in for a missing one, in a rollout or outside.
        """
        context, opened = current_rollout(), None
        if context is not None:
            opened = decided(context, lambda: self._opened(context, client, options))
        call, sent = opened or (None, options)
        if _sends_stand_in(client, sent, call):
            url = _absolute(client, sent.url)
            if context is None or not within(url, context.endpoint_origin):
                error = missing_key(url)
                if call is not None:
                    call.failed(error)
                raise error
        return call, sent

    def _opened(
        self, context: RolloutContext, client: Any, options: Any
    ) -> tuple[OpenCall, Any] | None:
        api, held = api_of_path(options.url), options.json_data
        if api is None or options.method.lower() != "post" or not isinstance(held, Mapping):
            return None
        body = self._body(held, options.extra_json)
        info = CallInfo(
            api=api,
            url=_absolute(client, options.url),
            model=body.get("model"),
            agent=current_agent(),
            messages=request_messages(api, body),
            client=self._client,
        )
        call = open_call(context, info, body)
        try:
            return call, self._rewritten(client, options, call)
        except Exception:
            call.forget()
            raise

    def _body(self, held: Mapping[str, Any], extra: Any) -> dict[str, Any]:
        """The body as the SDK would send it."""
        merged = {**held, **extra} if isinstance(extra, Mapping) else held
        return {key: value for key, value in merged.items() if not isinstance(value, self._absent)}

    def _rewritten(self, client: Any, options: Any, call: OpenCall) -> Any:
        """The options to send: the caller's own object, or a changed copy of it."""
        outgoing, headers = call.outgoing, dict(call.headers)
        if not outgoing.changed and not headers:
            return options
        rewritten = copy.copy(options)
        if outgoing.changed:
            rewritten.json_data = dict(outgoing.body)
            rewritten.extra_json = None  # merged already; the SDK would let it beat the route
        if outgoing.moved:
            # Absolute, which SDKs leave alone; else the SDK finds it, as Azure's does by the model.
            query = urlsplit(options.url).query
            rewritten.url = f"{outgoing.url}?{query}" if query else outgoing.url
        if outgoing.drop_auth:
            left_out = {name: self._left_out() for name in withheld(call)}
            headers = {**left_out, **headers, **key_headers(call)}
            # Queries may hold keys too, and what one server wants means nothing to another.
            given = options.params if isinstance(options.params, Mapping) else {}
            rewritten.params = {name: self._left_out() for name in (*client.default_query, *given)}
        rewritten.headers = _merged(options.headers, headers)
        return rewritten


def _merged(given: Any, ours: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's headers with ours in their place; headers know no case."""
    names = {name.lower() for name in ours}
    kept = given.items() if isinstance(given, Mapping) else ()
    return {**{name: value for name, value in kept if name.lower() not in names}, **ours}


def _process_response(original: Any, client: Any, **given: Any) -> Any:
    _take(**given)
    return original(client, **given)


async def _process_response_async(original: Any, client: Any, **given: Any) -> Any:
    _take(**given)
    return await original(client, **given)


@never_raises(lambda: None)
def _take(*, response: Any, retries_taken: int = 0, **_: Any) -> None:
    call = call_under_way()
    # A failed one comes by here too where the client has middleware; the SDK may yet try again.
    if call is not None and not response.is_error:
        received(call, response, retries=retries_taken)


@never_raises(lambda: False)
def _sends_stand_in(client: Any, options: Any, call: OpenCall | None) -> bool:
    """Whether the request carries the stand-in: as the client's key, unless something replaces it."""
    if call is not None and not call.outgoing.drop_auth and call.outgoing.api_key is not None:
        return call.outgoing.api_key == STAND_IN
    given = [
        value
        for headers in (client.default_headers, options.headers)
        if isinstance(headers, Mapping)
        for name, value in headers.items()
        if name.lower() == "authorization"
    ]
    return STAND_IN in str(given[-1]) if given else client.api_key == STAND_IN


def _absolute(client: Any, url: str) -> str:
    return url if "://" in url else str(client.base_url).rstrip("/") + "/" + url.lstrip("/")
