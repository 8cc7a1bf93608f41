"""A rollout's spans as a tree a person can read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.text import Text
from rich.tree import Tree

from agentlightning import semconv
from agentlightning.cli.common import number, short
from agentlightning.records import JSON, LLMCall, Rollout, Span

COLOURS = {"llm": "cyan", "tool": "green", "reward": "yellow", "agent": "magenta", "exception": "red"}


def trace_tree(rollout: Rollout, spans: Sequence[Span]) -> Tree:
    """The spans by parent; one whose parent was not recorded hangs under the rollout."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda item: (item.start_ns, item.index)):
        children[span.parent_id if span.parent_id in known else None].append(span)
    tree = Tree(
        f"rollout {rollout.rollout_id} {rollout.status}, attempt {rollout.attempt}, "
        f"reward {number(rollout.reward)}: {short(rollout.input)}"
    )
    _grow(tree, children, None)
    return tree


def _grow(tree: Tree, children: dict[str | None, list[Span]], parent: str | None) -> None:
    for span in children.get(parent, ()):
        _grow(tree.add(_label(span)), children, span.span_id)


def _label(span: Span) -> Text:
    took = f"{(span.end_ns - span.start_ns) / 1e9:.2f} s"
    label = Text.assemble(
        (span.kind, COLOURS.get(span.kind, "white")), f" {_text(span)} ", (took, "dim")
    )
    return label.append(" error", "red") if span.status == "error" else label


def _text(span: Span) -> str:
    attributes = span.attributes
    if span.call is not None:
        return _call_text(span.call)
    if span.kind == "tool":
        arguments = short(attributes.get(semconv.TOOL_ARGUMENTS, ""))
        return f"{span.name}({arguments}) → {short(attributes.get(semconv.TOOL_RESULT, ''))}"
    if span.kind == "reward":
        value = number(attributes.get(semconv.REWARD_VALUE))
        return f"{attributes.get(semconv.REWARD_NAME, span.name)} = {value}"
    if span.kind == "exception":
        kind = attributes.get(semconv.EXCEPTION_TYPE, span.name)
        return f"{kind}: {short(attributes.get(semconv.EXCEPTION_MESSAGE, ''))}"
    body = attributes.get(semconv.MESSAGE_BODY, attributes.get(semconv.OBJECT_BODY))
    return span.name if body is None else f"{span.name}: {short(body)}"


def _call_text(call: LLMCall) -> str:
    who = f"{call.agent}: " if call.agent else ""
    version = "" if call.model_version is None else f" v{call.model_version}"
    if call.error:
        return f"{who}{call.model}{version} failed: {short(call.error)}"
    usage = call.usage or {}
    tokens = f"{usage.get('prompt_tokens', '?')}→{usage.get('completion_tokens', '?')} tokens"
    message = call.choices[0].message if call.choices else {}
    reply = message.get("content") or _tool_calls(message) or "no text"
    return f"{who}{call.model}{version} {tokens}: {short(reply)}"


def _tool_calls(message: Mapping[str, JSON]) -> str:
    """The calls a reply asks for, as a person writes calls."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    return ", ".join(f"{item.get('name')}({item.get('arguments') or ''})" for item in functions)
