"""Traces of another tracer, imported, are a run to learn from like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentlightning.exchange import TraceOptions, import_traces
from agentlightning.samples import CreditRules
from agentlightning_sft.choosing import choose, find_run
from agentlightning_sft.config import SFTConfig
from agentlightning_sft.recorded import RecordedRun
from agentlightning_sft.tokenising import ChatTokeniser

TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}
CALL = {"type": "tool_call", "id": "c1", "name": "count", "arguments": {"of": "lamps"}}
RESULT = {"type": "tool_call_response", "id": "c1", "response": "2"}


def attribute(name: str, value: Any) -> dict[str, Any]:
    kind = "doubleValue" if isinstance(value, float) else "stringValue"
    return {"key": name, "value": {kind: value}}


def message(role: str, *parts: Any) -> dict[str, Any]:
    made = [{"type": "text", "content": part} if isinstance(part, str) else part for part in parts]
    return {"role": role, "parts": made}


def span(number: int, name: str, start: int, parent: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "traceId": f"{number:032x}", "spanId": f"{start:016x}", "parentSpanId": parent, "name": name,
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 1), **fields,
    }  # fmt: skip


def trace(number: int, score: float, *calls: tuple[list[Any], Any]) -> dict[str, Any]:
    """A trace of an agent with an LLM call for each (messages, reply)."""
    first = number * 100
    root = span(number, "shop", first, attributes=[attribute("eval.score", score)])
    spans = [root]
    for place, (asked, reply) in enumerate(calls, 1):
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps([reply]),
            "gen_ai.tool.definitions": json.dumps([TOOL]),
        }
        attributes = [attribute(name, value) for name, value in told.items()]
        spans.append(span(number, "chat", first + place, f"{first:016x}", attributes=attributes))
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


@pytest.fixture
def run(store, tmp_path):
    """Two traces: a good one of two turns with a tool, and a bad one."""
    asked = [message("user", "How many lamps?")]
    going_on = [*asked, message("assistant", CALL), message("tool", RESULT)]
    good = trace(
        1, 1.0, (asked, message("assistant", CALL)), (going_on, message("assistant", "Two lamps."))
    )
    bad = trace(2, 0.0, (asked, message("assistant", "No idea.")))
    path = tmp_path / "shop.json"
    path.write_text("\n".join(map(json.dumps, (good, bad))))
    options = TraceOptions(rewards={"eval.score": "reward"})
    told = import_traces(store, [path], options, lambda done, total: None)
    assert told.skipped == {}
    return find_run(store, "shop")


def test_the_best_imported_rollouts_are_chosen(store, run):
    config = SFTConfig(source_run="shop", reward_threshold=0.5)
    chosen, dropped = choose(store, run, config, CreditRules(need_reward=False))
    assert [item.output for item in chosen] == ["Two lamps."]
    assert dropped == {"rollouts with a reward below 0.5": 1}


def test_an_imported_conversation_is_one_example_with_its_tool_call(store, run, tokenizer):
    config = SFTConfig(source_run="shop", reward_threshold=0.5)
    tokenise = ChatTokeniser(tokenizer, assistant_only=True, model="tiny")
    made = RecordedRun(store, config, tokenizer, tokenise, None, "agent").examples("shop")
    (one,) = made.items
    text = tokenizer.decode(one.ids)
    learned = tokenizer.decode([i for i, on in zip(one.ids, one.mask, strict=True) if on])
    assert "How many lamps?" in text
    assert "How many lamps?" not in learned
    assert "count" in learned
    assert "Two lamps." in learned
    assert not one.exact
    assert made.retokenised == {"calls without token ids": 2}
