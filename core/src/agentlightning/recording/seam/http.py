"""The HTTP clients beneath the SDKs: sees each try of an SDK's call, and calls that come without one.

What bypasses the SDKs (litellm's ``hosted_vllm/*``, plain posts) is known by its path and routed and
recorded like any other call. A try of a call that an SDK opened is told to that call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from agentlightning.errors import UnroutedCall
from agentlightning.llm_api import api_of_path, request_messages, within
from agentlightning.recording.context import RolloutContext, current_agent, current_rollout
from agentlightning.recording.guard import never_raises, report_fault
from agentlightning.recording.open_call import OpenCall, open_call
from agentlightning.recording.own_clients import is_own
from agentlightning.recording.patching import Patch
from agentlightning.recording.seam.credentials import set_credentials
from agentlightning.recording.seam.streams import received
from agentlightning.recording.seam.under_way import UnderWay, call_under_way, decided
from agentlightning.recording.stand_in import STAND_IN, missing_key
from agentlightning.records import Api, CallInfo

_INPUTS: Final[Mapping[Api, str]] = {
    "chat": "messages",
    "completions": "prompt",
    "responses": "input",
    "messages": "messages",
}


class HttpSeam:
    """The seam of one HTTP library: of httpx or httpx2.

    Args:
        package: its top module.
    """

    def __init__(self, package: Any) -> None:
        self._client = f"{package.__name__} {package.__version__}"
        self._not_read: type[Exception] = package.RequestNotRead
        self._package = package

    def patches(self) -> list[Patch]:
        """The patches of the clients, not applied yet."""
        return [
            Patch(self._package.Client, "send", self._send),
            Patch(self._package.AsyncClient, "send", self._send_async),
        ]

    def _send(self, original: Any, client: Any, request: Any, **options: Any) -> Any:
        leaving = self._leaving(client, request, options)
        if leaving is None:
            return original(client, request, **options)
        with leaving:
            response = original(client, leaving.request, **leaving.options)
            leaving.answered(response)
            return response

    async def _send_async(self, original: Any, client: Any, request: Any, **options: Any) -> Any:
        leaving = self._leaving(client, request, options)
        if leaving is None:
            return await original(client, request, **options)
        with leaving:
            response = await original(client, leaving.request, **leaving.options)
            leaving.answered(response)
            return response

    def _leaving(self, client: Any, request: Any, options: dict[str, Any]) -> _Leaving | None:
        """What is about to leave; None for what is no LLM call of a rollout, or is told already."""
        api = _api_asked(client, request)
        if api is None:
            return None
        call = call_under_way()
        if call is not None and call.api == api:
            return None if call.sending else _try_of(call, request, options)
        context, leaving = current_rollout(), None
        if context is not None:
            leaving = decided(context, lambda: self._opened(context, api, request, options))
        _refuse_stand_in(context, request if leaving is None else leaving.request, leaving)
        return leaving

    def _opened(
        self, context: RolloutContext, api: Api, request: Any, options: dict[str, Any]
    ) -> _Leaving | None:
        body = self._body(context, api, request)
        if body is None:
            return None
        info = CallInfo(
            api=api,
            url=str(request.url),
            model=body.get("model"),
            agent=current_agent(),
            messages=request_messages(api, body),
            client=self._client,
        )
        call = open_call(context, info, body)
        try:
            return _Leaving(call, _rewritten(request, body, call), options, whole=True)
        except Exception:
            call.forget()
            raise

    def _body(self, context: RolloutContext, api: Api, request: Any) -> dict[str, Any] | None:
        """The body of an LLM call; None for anything else that is posted to such a path."""
        try:
            content = request.content
        except self._not_read as error:  # it comes from an iterator, which can be read only once
            told = "its body is sent from an iterator; give it as `json` or `content`"
            if context.strict:
                raise UnroutedCall(f"strict mode: a POST to {_address(request)}: {told}") from error
            report_fault(f"a POST to {_address(request)}: {told}", error)
            return None
        try:
            body = json.loads(content)
        except ValueError:
            return None
        return body if isinstance(body, dict) and _asks_a_model(api, body, request) else None


class _Leaving:
    """A request that is about to leave: one try of an SDK's call, or the whole of a call.

    A class and no generator, so that an exception passes with its traceback untouched.
    """

    def __init__(self, call: OpenCall, request: Any, options: dict[str, Any], *, whole: bool) -> None:
        self.call = call
        self.request = request
        self.options = options
        self._content: bytes = request.content
        self._under_way = UnderWay(call) if whole else None
        if call.outgoing.drop_auth or call.outgoing.api_key is not None:
            set_credentials(request.headers, call)
            self.options = {**options, "auth": None}  # else the client would add its own

    def __enter__(self) -> None:
        if self._under_way is not None:
            self._under_way.__enter__()
        self.call.sending = True
        self.call.leaves(str(self.request.url), self._content, self.request.headers)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.call.sending = False
        if self._under_way is not None:
            self._under_way.__exit__(kind, error, traceback)
        elif error is not None:
            self.call.try_failed(error)

    @never_raises(lambda: None)
    def answered(self, response: Any) -> None:
        """Take the response: of a try only that it failed, an SDK's reply is taken above."""
        told = _error_of(response, streamed=bool(self.options.get("stream")))
        if self._under_way is None:
            if told is not None:
                self.call.try_failed(told)
            return
        self.call.answers()
        if told is None:
            received(self.call, response)
        else:
            self.call.failed(told)


def _no_api() -> Api | None:
    return None


@never_raises(_no_api)
def _api_asked(client: Any, request: Any) -> Api | None:
    """The protocol of a request by its path; None for what asks no model, or is none of an agent's."""
    api = api_of_path(request.url.path) if request.method == "POST" else None
    return None if api is None or is_own(client) else api


def _no_try() -> _Leaving | None:
    return None


@never_raises(_no_try)
def _try_of(call: OpenCall, request: Any, options: dict[str, Any]) -> _Leaving | None:
    return _Leaving(call, request, options, whole=False)


def _rewritten(request: Any, body: Mapping[str, Any], call: OpenCall) -> Any:
    """The request to send: the caller's own object, or a changed copy of it."""
    outgoing, headers = call.outgoing, call.headers
    if not outgoing.changed and not headers:
        return request
    content = request.content
    if outgoing.body != body:
        content = json.dumps(outgoing.body, ensure_ascii=False, separators=(",", ":")).encode()
    found_anew = {b"content-length", b"transfer-encoding"} | ({b"host"} if outgoing.moved else set())
    kept = [(name, value) for name, value in request.headers.raw if name.lower() not in found_anew]
    rewritten = type(request)(
        request.method,
        outgoing.url,
        headers=kept,
        content=content,
        extensions=request.extensions,
    )
    rewritten.headers.update(headers)
    return rewritten


def _asks_a_model(api: Api, body: Mapping[str, Any], request: Any) -> bool:
    """Whether this is what the path says; others have paths that end in /completions or /responses."""
    named = "model" in body or "/deployments/" in request.url.path
    return _INPUTS[api] in body and (named or api == "chat")


def _refuse_stand_in(context: RolloutContext | None, request: Any, leaving: _Leaving | None) -> None:
    """Raise ``MissingKey`` for a request with the key that stands in for a missing one."""
    url = str(request.url)
    if STAND_IN not in request.headers.get("authorization", ""):
        return
    if context is None or not within(url, context.endpoint_origin):
        error = missing_key(url)
        if leaving is not None:
            leaving.call.failed(error)
        raise error


def _error_of(response: Any, *, streamed: bool) -> str | None:
    """What a response says that reports an error; None for a good one."""
    if not response.is_error:
        return None
    text = "" if streamed else response.text[:500]
    return f"HTTP {response.status_code}: {text}" if text else f"HTTP {response.status_code}"


def _address(request: Any) -> str:
    """The request's address, without its query, which may hold a key."""
    return str(request.url).partition("?")[0]
