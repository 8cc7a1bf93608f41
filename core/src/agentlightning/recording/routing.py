"""What becomes of one LLM call before it is sent: refused, left alone, or rewritten by its route."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentlightning.errors import RolloutCancelled, UnroutedCall
from agentlightning.llm_api import url_for, within
from agentlightning.recording.context import RolloutContext
from agentlightning.recording.guard import report_fault
from agentlightning.records import Api, CallInfo, Decision, Passthrough, Route

logger = logging.getLogger("agentlightning.recording")


@dataclass(frozen=True)
class Outgoing:
    """A call as it will be sent.

    Attributes:
        headers: to be set beside the caller's own.
        drop_auth: the caller's own credentials must not go along: they are another server's.
        by_endpoint: our endpoint records this call.
        changed: something of it differs from what the caller asked for, its headers apart.
        moved: the route names the server, so that ``url`` is to be used as it is.
    """

    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    api_key: str | None
    drop_auth: bool
    by_endpoint: bool
    changed: bool
    moved: bool
    how: str


def decide(context: RolloutContext, info: CallInfo, body: Mapping[str, Any]) -> Outgoing:
    """Ask the rollout's resolver and apply its answer; ``body`` is read, never changed.

    Raises:
        RolloutCancelled: the attempt was cancelled, timed out or is over.
        UnroutedCall: strict mode, and nobody decided.
    """
    refuse_if_over(context)
    try:
        return _decided(context, info, body)
    except UnroutedCall:
        context.life.count_refused()
        raise


def _decided(context: RolloutContext, info: CallInfo, body: Mapping[str, Any]) -> Outgoing:
    decision, broken = _resolved(context, info)
    if isinstance(decision, Route):
        return _routed(context, info, decision, body)
    by_endpoint = within(info.url, context.endpoint_origin)
    if decision is None and context.strict and not by_endpoint:
        raise UnroutedCall(_unrouted_message(context, info))
    return Outgoing(
        url=info.url,
        body=body,
        headers={},
        api_key=None,
        drop_auth=False,
        by_endpoint=by_endpoint,
        changed=False,
        moved=False,
        how=_describe(decision, by_endpoint=by_endpoint) + broken,
    )


def _resolved(context: RolloutContext, info: CallInfo) -> tuple[Decision, str]:
    """The resolver's answer; one that fails has not decided, which the second part then tells."""
    try:
        return context.resolve(info), ""
    except (UnroutedCall, RolloutCancelled):
        raise
    except Exception as error:
        report_fault("the resolver of a rollout", error)
        told = f"the resolver failed ({type(error).__name__}: {error})"
        if context.strict:
            raise UnroutedCall(f"strict mode: the LLM call could not be routed: {told}") from error
        return None, f"; {told}"


def refuse_if_over(context: RolloutContext) -> None:
    """Raise ``RolloutCancelled`` unless the attempt is still open; late calls are counted."""
    rollout, number = context.key
    if context.life.phase == "cancelled":
        raise RolloutCancelled(
            f"attempt {number} of rollout {rollout} was cancelled or ran out of time; its agent is "
            "ended at this LLM call. Let this exception pass"
        )
    if context.life.phase == "over":
        context.life.count_late("llm call")
        raise RolloutCancelled(
            f"attempt {number} of rollout {rollout} is over, so this LLM call of a thread or task it "
            "left behind is refused. Join such threads in the agent; an agent whose threads serve "
            'several rollouts needs the executor "processes"'
        )


def _routed(context: RolloutContext, info: CallInfo, route: Route, body: Mapping[str, Any]) -> Outgoing:
    url = info.url if route.base_url is None else url_for(route.base_url, info.api)
    changed = {**body, **route.extra_body}
    if route.model is not None:
        changed["model"] = route.model
    how = "routed"
    if route.system_prompt is not None:
        if info.api == "completions":
            how = "routed; the prompt was not put in: the completions API has no system prompt"
            logger.warning("%s (agent %r)", how, info.agent)
        else:
            changed = with_system_prompt(info.api, changed, route.system_prompt)
    return Outgoing(
        url=url,
        body=changed,
        headers=route.headers,
        api_key=route.api_key,
        drop_auth=not within(url, info.url),
        by_endpoint=within(url, context.endpoint_origin),
        changed=True,
        moved=route.base_url is not None,
        how=how,
    )


def with_system_prompt(api: Api, body: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    """A copy of ``body`` with its system prompt replaced, or put first where there was none.

    Not for the completions API, which has none.
    """
    if api == "messages":
        return {**body, "system": prompt}
    field = "input" if api == "responses" else "messages"
    held = body.get(field)
    items = list(held) if isinstance(held, list | tuple) else []
    place = next((at for at, item in enumerate(items) if _is_system(item)), None)
    if place is not None and not body.get("instructions"):
        items[place] = {**items[place], "content": prompt}
        return {**body, field: items}
    if api == "responses":
        return {**body, "instructions": prompt}
    return {**body, field: [{"role": "system", "content": prompt}, *items]}


def _is_system(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("role") in {"system", "developer"}


def _describe(decision: Decision, *, by_endpoint: bool) -> str:
    if isinstance(decision, Passthrough):
        return f"passthrough: {decision.reason}"
    return "routed" if by_endpoint else "unrouted"


def _unrouted_message(context: RolloutContext, info: CallInfo) -> str:
    return (
        f"strict mode: nobody decided where the LLM call of agent {info.agent!r} to model "
        f"{info.model!r} at {info.url.split('?')[0]} goes (rollout {context.key.rollout_id}). Route it "
        "with an LLM resource or `trained_agents`, return Passthrough(reason=…) for it, or set "
        "`strict: false`"
    )
