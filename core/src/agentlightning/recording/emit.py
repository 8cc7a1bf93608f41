"""``emit``: one recorded model call, without any SDK."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentlightning.errors import ConfigError, ModelCallFailed
from agentlightning.llm_api import scrub, scrub_text, url_for
from agentlightning.llm_api.replies import read_body, read_reply
from agentlightning.recording.context import RolloutContext, current_agent, current_rollout
from agentlightning.recording.defaults import (
    default_api_key,
    default_base_url,
    default_model,
    default_store,
    no_model,
)
from agentlightning.recording.open_call import Heard, OpenCall, open_call
from agentlightning.recording.own_clients import own_client
from agentlightning.recording.own_rollout import own_rollout
from agentlightning.recording.stand_in import real_key
from agentlightning.recording.tools import refuse_ellipsis, tool_schemas
from agentlightning.records import JSON, CallInfo

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class ToolCall:
    """A tool the model wants called; ``arguments`` is text where it is not a JSON object."""

    id: str | None
    name: str
    arguments: dict[str, JSON] | str


@dataclass(frozen=True)
class Reply:
    """What the model said.

    Attributes:
        text: the reply's text; empty when it only calls tools.
        tool_calls: the tools it wants called; ``emit`` calls none.
        usage: tokens used, as the server counted them.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Mapping[str, JSON] | None = None


def emit(
    prompt: str | Sequence[Mapping[str, Any]],
    tools: Iterable[Mapping[str, Any] | Callable[..., Any]] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Reply:
    """Ask the model once and record the call.

    Inside a rollout the call is that rollout's, routed like every other; outside, it is a rollout of
    its own in the run ``local``. The model is ``init``'s, else ``AGENTLIGHTNING_MODEL``, else
    ``OPENAI_MODEL``.

    Args:
        prompt: the user's message, or a list of chat messages.
        tools: OpenAI tool schemas, or functions whose signature is shown to the model.
        context: what the model should know first: each entry becomes a line of a system message; an
            entry that is a list of chat messages is put in as it is.

    Raises:
        ConfigError: no model is known, a literal ``...`` was left in, or an argument is something else.
        ModelCallFailed: no usable reply came; the failed call is recorded too.
    """
    refuse_ellipsis(prompt, "prompt", "the text to send")
    refuse_ellipsis(context, "context", 'a mapping such as {"customer": "Ann"}')
    body: dict[str, Any] = {"messages": [*_context_messages(context or {}), *_messages(prompt)]}
    if tools is not None:
        refuse_ellipsis(tools, "tools", "a list of tools: functions, or OpenAI tool schemas")
        body["tools"] = tool_schemas(tools)
    rollout = current_rollout()
    if rollout is not None:
        return _ask(rollout, body)
    if not default_model():
        raise ConfigError(no_model())
    with own_rollout(
        default_store(), name="emit", input=body["messages"], why="agl.emit outside a run"
    ) as mine:
        reply = _ask(mine.context, body)
        mine.output = reply.text
        return reply


def _ask(rollout: RolloutContext, body: dict[str, Any]) -> Reply:
    # The rollout's route may name the model, so that none has to be known here.
    body = {"model": default_model(), **body}
    info = CallInfo(
        api="chat",
        url=url_for(default_base_url(), "chat"),
        model=body["model"],
        agent=current_agent(),
        messages=tuple(body["messages"]),
        client="agl.emit",
    )
    call = open_call(rollout, info, body)
    try:
        reply = _send(call)
    except BaseException as error:
        call.failed(error)
        raise
    call.replied(lambda: Heard(reply))
    return _read(reply)


def _send(call: OpenCall) -> dict[str, Any]:
    import httpx

    outgoing = call.outgoing
    if not outgoing.body.get("model"):
        raise ConfigError(no_model())
    key = real_key(outgoing.api_key) or (None if outgoing.drop_auth else default_api_key())
    headers = {**call.headers, **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        answer = _client().post(outgoing.url, json=dict(outgoing.body), headers=headers)
    except httpx.HTTPError as error:
        raise ModelCallFailed(
            f"{outgoing.url} did not answer ({type(error).__name__}: {error}); is the server up, and "
            "is OPENAI_BASE_URL (or init's base_url) right?"
        ) from error
    if answer.is_error:
        told = scrub_text(answer.text[:500], secrets=[key, *call.headers.values()])
        raise ModelCallFailed(f"{outgoing.url} answered {answer.status_code}: {told}")
    body, problem = read_body(answer.content)
    if body is None:
        raise ModelCallFailed(f"{outgoing.url}: {problem}")
    return body


@functools.cache
def _client() -> httpx.Client:
    """One client a process: making one costs some 20 ms, for the certificates it reads."""
    import httpx

    unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return own_client(httpx.Client(timeout=_TIMEOUT_S, limits=unlimited))


def _read(body: Mapping[str, Any]) -> Reply:
    reply = read_reply("chat", body)
    if reply.problem is not None:
        raise ModelCallFailed(f"the model gave no usable reply: {reply.problem}")
    message, usage = reply.choices[0].message, body.get("usage")
    return Reply(
        text=message.get("content") or "",
        tool_calls=tuple(_tool_call(call) for call in message.get("tool_calls") or ()),
        usage=dict(usage) if isinstance(usage, Mapping) else None,
    )


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    arguments = function.get("arguments") or "{}"
    try:
        parsed = json.loads(arguments)
    except (TypeError, ValueError):  # a model may write anything; the caller sees it as it is
        parsed = None
    return ToolCall(
        id=call.get("id"),
        name=function.get("name") or "",
        arguments=parsed if isinstance(parsed, dict) else arguments,
    )


def _messages(prompt: str | Sequence[Mapping[str, Any]]) -> list[JSON]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    items = list(prompt) if isinstance(prompt, Sequence) else [prompt]
    messages = [dict(item) for item in items if isinstance(item, Mapping)]
    if len(messages) < len(items):
        raise ConfigError(
            f"prompt is {prompt!r}; expected text, or a list of chat messages such as "
            '{"role": "user", "content": …}'
        )
    return messages


def _context_messages(context: Mapping[str, Any]) -> list[JSON]:
    if not isinstance(context, Mapping):
        raise ConfigError(
            f'context is {context!r}; expected a mapping such as {{"customer": "Ann"}}; text belongs '
            "into the prompt"
        )
    lines, messages = [], []
    for name, value in context.items():
        if _is_conversation(value):
            messages += [dict(message) for message in value]
        else:
            text = value if isinstance(value, str) else json.dumps(scrub(value), ensure_ascii=False)
            lines.append(f"{name}: {text}")
    system = [{"role": "system", "content": "\n".join(lines)}] if lines else []
    return [*system, *messages]


def _is_conversation(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and "role" in item for item in value)
    )
