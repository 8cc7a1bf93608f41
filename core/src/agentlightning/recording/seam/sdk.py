"""Between the SDK's request options and our calls: what the patched methods do."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from agentlightning import semconv
from agentlightning.errors import RolloutCancelled, UnroutedCall
from agentlightning.llm_api import api_of_path, request_messages, within
from agentlightning.llm_api.replies import read_body
from agentlightning.recording.context import RolloutContext, current_agent, current_rollout
from agentlightning.recording.guard import never_raises, report_fault
from agentlightning.recording.open_call import OpenCall, open_call
from agentlightning.recording.patching import Patch
from agentlightning.recording.seam.streams import tap_stream
from agentlightning.recording.stand_in import STAND_IN, missing_key
from agentlightning.records import CallInfo

_under_way: ContextVar[OpenCall | None] = ContextVar("agentlightning_call", default=None)

_AUTH_HEADERS: Final = ("Authorization", "api-key", "x-api-key")


class SdkSeam:
    """The seam of one SDK.

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

    def _request(self, original: Any, client: Any, cast_to: Any, options: Any, **more: Any) -> Any:
        call, sent = self._begin(client, options)
        if call is None:
            return original(client, cast_to, options, **more)
        outer = _under_way.get()
        _under_way.set(call)
        try:
            return original(client, cast_to, sent, **more)
        except BaseException as error:
            _failed(call, error)
            raise
        finally:
            _under_way.set(outer)

    async def _request_async(
        self, original: Any, client: Any, cast_to: Any, options: Any, **more: Any
    ) -> Any:
        call, sent = self._begin(client, options)
        if call is None:
            return await original(client, cast_to, options, **more)
        outer = _under_way.get()
        _under_way.set(call)
        try:
            return await original(client, cast_to, sent, **more)
        except BaseException as error:
            _failed(call, error)
            raise
        finally:
            _under_way.set(outer)  # not reset by token: a coroutine may be closed in another context

    def _begin(self, client: Any, options: Any) -> tuple[OpenCall | None, Any]:
        """Open a call and say what to send; None for what is no LLM call of a rollout.

        No request leaves with the key that stands in for a missing one, in a rollout or outside.
        """
        context = current_rollout()
        call, sent = (None, options) if context is None else self._decided(context, client, options)
        if _sends_stand_in(client, sent):
            url = _absolute(client, sent.url)
            if context is None or not within(url, context.endpoint_origin):
                error = missing_key(url)
                if call is not None:
                    call.failed(error)
                raise error
        return call, sent

    def _decided(
        self, context: RolloutContext, client: Any, options: Any
    ) -> tuple[OpenCall | None, Any]:
        try:
            call = self._open(context, client, options)
            return call, self._rewritten(options, call) if call else options
        except (UnroutedCall, RolloutCancelled):
            raise
        except Exception as error:
            report_fault("the preparation of an LLM call", error)
            if context.strict:
                raise UnroutedCall(
                    f"strict mode: the LLM call could not be routed ({type(error).__name__}: {error})"
                ) from error
            return None, options

    def _open(self, context: RolloutContext, client: Any, options: Any) -> OpenCall | None:
        api = api_of_path(options.url)
        held = options.json_data
        if api is None or options.method.lower() != "post" or not isinstance(held, Mapping):
            return None
        extra = options.extra_json if isinstance(options.extra_json, Mapping) else {}
        body = {
            key: value
            for key, value in {**held, **extra}.items()
            if not isinstance(value, self._absent)
        }
        info = CallInfo(
            api=api,
            url=_absolute(client, options.url),
            model=body.get("model"),
            agent=current_agent(),
            messages=request_messages(api, body),
            client=self._client,
        )
        return open_call(context, info, body)

    def _rewritten(self, options: Any, call: OpenCall) -> Any:
        """The options to send: the caller's own object, or a changed copy of it."""
        outgoing, headers = call.outgoing, dict(call.headers)
        if not outgoing.changed and not headers:
            return options
        rewritten = copy.copy(options)
        if outgoing.changed:
            rewritten.url = outgoing.url
            rewritten.json_data = dict(outgoing.body)
            rewritten.extra_json = None  # merged already; the SDK would let it beat the route
        if outgoing.drop_auth or outgoing.api_key is not None:
            headers.update(dict.fromkeys(_AUTH_HEADERS, self._left_out()))
        if outgoing.api_key is not None:
            headers["Authorization"] = f"Bearer {outgoing.api_key}"
        ours = {name.lower() for name in headers}
        given = options.headers if isinstance(options.headers, Mapping) else {}
        kept = {name: value for name, value in given.items() if name.lower() not in ours}
        rewritten.headers = {**kept, **headers}
        return rewritten


def _process_response(original: Any, client: Any, **given: Any) -> Any:
    call = _under_way.get()
    if call is not None:
        _received(call, given["response"], retries=given.get("retries_taken", 0))
    return original(client, **given)


async def _process_response_async(original: Any, client: Any, **given: Any) -> Any:
    call = _under_way.get()
    if call is not None:
        _received(call, given["response"], retries=given.get("retries_taken", 0))
    return await original(client, **given)


@never_raises(lambda: False)
def _sends_stand_in(client: Any, options: Any) -> bool:
    """Whether the request carries the stand-in: as the client's key, unless a header replaces it."""
    given = [
        value
        for headers in (client.default_headers, options.headers)
        if isinstance(headers, Mapping)
        for name, value in headers.items()
        if name.lower() == "authorization"
    ]
    return STAND_IN in str(given[-1]) if given else client.api_key == STAND_IN


@never_raises(lambda: None)
def _received(call: OpenCall, response: Any, *, retries: int) -> None:
    if call.outgoing.by_endpoint:
        call.replied(None)
    elif response.is_stream_consumed or response.is_closed:
        body, error = read_body(response.content)
        call.replied(body, retries=retries, error=error)
    else:
        tap_stream(call, response, retries=retries)


def _failed(call: OpenCall, error: BaseException) -> None:
    call.failed(error, retries=_retries_of(error))


@never_raises(lambda: 0)
def _retries_of(error: BaseException) -> int:
    """How often the SDK had tried again, which the last try's request says."""
    response = getattr(error, "response", None)
    request = getattr(response or error, "request", None)  # a cancellation has neither
    count = getattr(request, "headers", {}).get(semconv.HEADER_RETRY, "")
    return int(count) if count.isdigit() else 0


def _absolute(client: Any, url: str) -> str:
    return url if "://" in url else str(client.base_url).rstrip("/") + "/" + url.lstrip("/")
