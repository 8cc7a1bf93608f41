"""Builds the record of one LLM call, and its span, from what was sent and received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentlightning import semconv
from agentlightning.llm_api.replies import Reply, read_reply
from agentlightning.llm_api.scrub import scrub_body, scrub_text
from agentlightning.records import JSON, Api, AttemptKey, Choice, LLMCall, Span

_OPERATIONS: Final[dict[Api, str]] = {
    "chat": "chat",
    "completions": "text_completion",
    "responses": "chat",
    "messages": "chat",
}


def read_call(
    *,
    seq: int,
    api: Api,
    agent: str | None,
    base_url: str,
    request: Mapping[str, Any],
    response: Mapping[str, Any] | None,
    model_version: int | None = None,
    streamed: bool = False,
    complete: bool = True,
    retries: int = 0,
    error: str | None = None,
) -> LLMCall:
    """The record of one call, scrubbed of secrets and large media.

    Token ids and log-probabilities (vLLM's ``return_token_ids`` fields) move from the response into
    ``prompt_ids`` and ``choices``, packed. A reply that cannot be read gives an incomplete call with
    ``error`` set; nothing here raises for anything a server may send, and nothing given is changed.
    """
    reply = Reply({}) if response is None else read_reply(api, response)
    problem = error or reply.problem
    try:
        sent = scrub_body(request)
        received = None if response is None else scrub_body(reply.rest)
        choices = tuple(_scrubbed_choices(reply))
    except RecursionError:
        problem = "the call is nested too deeply to be recorded"
        sent, received, choices = {}, None, ()
    return LLMCall(
        seq=seq,
        api=api,
        model=_first_text(sent.get("model"), (received or {}).get("model")) or "",
        base_url=base_url,
        request=sent,
        response=received,
        agent=agent,
        model_version=model_version,
        response_id=_first_text((received or {}).get("id")),
        streamed=streamed,
        complete=complete and problem is None and response is not None,
        retries=retries,
        temperature=_number(sent.get("temperature")),
        usage=_mapping((received or {}).get("usage")),
        error=scrub_text(problem) if problem else None,
        prompt_ids=reply.prompt_ids,
        choices=choices,
    )


def llm_span(
    call: LLMCall,
    *,
    key: AttemptKey,
    trace_id: str,
    span_id: str,
    parent_id: str | None,
    start_ns: int,
    end_ns: int,
    attributes: Mapping[str, JSON] | None = None,
) -> Span:
    """The span of ``call``, with OpenTelemetry's ``gen_ai`` attributes and any further ones."""
    operation = _OPERATIONS[call.api]
    named: dict[str, JSON] = {
        semconv.OPERATION_NAME: operation,
        semconv.PROVIDER_NAME: "anthropic" if call.api == "messages" else "openai",
        semconv.AGENT_NAME: call.agent,
        semconv.REQUEST_MODEL: call.model or None,
        semconv.RESPONSE_MODEL: (call.response or {}).get("model"),
        semconv.RESPONSE_ID: call.response_id,
        semconv.INPUT_TOKENS: _tokens_of(call.usage, "prompt_tokens", "input_tokens"),
        semconv.OUTPUT_TOKENS: _tokens_of(call.usage, "completion_tokens", "output_tokens"),
        **(attributes or {}),
    }
    return Span(
        rollout_id=key.rollout_id,
        attempt=key.number,
        span_id=span_id,
        trace_id=trace_id,
        parent_id=parent_id,
        kind="llm",
        name=f"{operation} {call.model}".rstrip(),
        start_ns=start_ns,
        end_ns=end_ns,
        status="ok" if call.complete else "error",
        attributes={name: value for name, value in named.items() if value is not None},
        call=call,
    )


def _scrubbed_choices(reply: Reply) -> list[Choice]:
    from msgspec.structs import replace

    return [replace(choice, message=scrub_body(choice.message)) for choice in reply.choices]


def _first_text(*values: JSON) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


def _number(value: JSON) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mapping(value: JSON) -> dict[str, JSON] | None:
    return value if isinstance(value, dict) else None


def _tokens_of(usage: dict[str, JSON] | None, *names: str) -> int | None:
    counts = ((usage or {}).get(name) for name in names)
    return next((count for count in counts if isinstance(count, int)), None)
