"""Examples from a recorded run: its exact token ids where they are ours, its messages otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agentlightning.llm_api import conversation
from agentlightning.records import JSON, LLMCall, Rollout, Span
from agentlightning.samples import (
    CreditRules,
    Reason,
    Row,
    Transition,
    exact_agents,
    rows,
    transitions,
)
from agentlightning.store import Store

from agentlightning_sft.choosing import choose, find_run
from agentlightning_sft.config import SFTConfig
from agentlightning_sft.examples import Example, Examples
from agentlightning_sft.messages import (
    BadChat,
    Message,
    for_template,
    for_template_tools,
    same_turn,
)
from agentlightning_sft.tokenising import ChatTokeniser

_PAGE: Final = 100


@dataclass
class Conversation:
    """Calls of one agent of which each continues the one before, as messages.

    ``replies`` are the places of what was really answered: what an agent only claims the assistant
    said (examples in its prompt) is not to be learned.
    """

    agent: str | None
    tools: list[JSON] | None
    messages: list[Message]
    replies: set[int] = field(default_factory=set)

    def goes_on_in(self, agent: str | None, tools: list[JSON] | None, asked: Sequence[Message]) -> bool:
        """Whether a request of ``agent`` begins with all that was said here."""
        begins = asked[: len(self.messages)]
        return (
            (agent, tools) == (self.agent, self.tools)
            and len(begins) == len(self.messages)
            and all(same_turn(one, other) for one, other in zip(begins, self.messages, strict=True))
        )


class RecordedRun:
    """Reads a run of the store.

    Args:
        store: holds the run.
        config: says which run, and which of its rollouts.
        tokenizer: of the model that is trained; recorded ids of another are of no use.
        tokenise: for calls without usable ids.
        agents: names of the agents to learn from; None for all.
        reward_version: the version of rewards that rollouts are chosen by.
    """

    def __init__(
        self,
        store: Store,
        config: SFTConfig,
        tokenizer: Any,
        tokenise: ChatTokeniser,
        agents: Sequence[str] | None,
        reward_version: str,
    ) -> None:
        self._store = store
        self._config = config
        self._tokenizer = tokenizer
        self._tokenise = tokenise
        patterns = exact_agents(agents) if agents else None
        self._rules = CreditRules(agents=patterns, version=reward_version, need_reward=False)

    def examples(self, named: str) -> Examples:
        """All examples of the run of that id or name."""
        run = find_run(self._store, named)
        chosen, dropped = choose(self._store, run, self._config, self._rules)
        made = Examples(dropped=dropped)
        for start in range(0, len(chosen), _PAGE):
            page = chosen[start : start + _PAGE]
            spans: dict[str, list[Span]] = {rollout.rollout_id: [] for rollout in page}
            for span in self._store.spans(list(spans)):
                spans[span.rollout_id].append(span)
            for rollout in page:
                made.add(self._of_rollout(rollout, spans[rollout.rollout_id]))
        return made

    def _of_rollout(self, rollout: Rollout, spans: Sequence[Span]) -> Examples:
        calls = {span.span_id: span.call for span in spans if span.call}
        made, exact, anew = Examples(), [], []
        found = transitions(rollout, spans, self._rules)
        if not found:
            made.dropped["rollouts without an LLM call"] += 1
        for one in found:
            if one.dropped is Reason.NO_TOKEN_IDS:
                made.retokenised["calls without token ids"] += 1
                anew.append(one)
            elif one.dropped:
                made.dropped[f"calls: {one.dropped.value}"] += 1
            elif not self._reads_back(one, calls[one.span_id]):
                made.retokenised["calls with another model's token ids"] += 1
                anew.append(one)
            else:
                exact.append(one)
        merged, _ = rows(exact, level="trajectory")
        made.items += [self._exact(row) for row in merged]
        for told in self._conversations(anew, calls, made.dropped):
            try:
                made.items.append(
                    self._tokenise.example(told.messages, told.tools, replies=told.replies)
                )
            except BadChat as error:
                made.dropped[f"conversations: {error}"] += 1
        return made

    def _exact(self, row: Row) -> Example:
        ids = [*row.prompt_ids, *row.response_ids]
        if not self._config.assistant_only:
            return Example(ids, bytes([1]) * len(ids), exact=True)
        return Example(ids, bytes(len(row.prompt_ids)) + row.mask, exact=True)

    def _reads_back(self, one: Transition, call: LLMCall) -> bool:
        """Whether the recorded ids mean, to our tokenizer, what was said: then it made them too."""
        if max(*one.prompt_ids, *one.response_ids) >= len(self._tokenizer):
            return False
        messages = conversation(call)
        if not messages or one.choice:  # other choices than the first are not in the conversation
            return True
        *asked, reply = messages
        heard = self._tokenizer.decode(list(one.prompt_ids))
        said = self._tokenizer.decode(list(one.response_ids))
        return all(text in heard for text in _texts(asked[-1:])) and all(
            text in said for text in _texts([reply])
        )

    def _conversations(
        self, calls: Sequence[Transition], by_span: dict[str, LLMCall], dropped: Counter[str]
    ) -> list[Conversation]:
        """The calls as conversations, those that go on merged."""
        told: list[Conversation] = []
        for one in calls:
            if one.choice:
                dropped["choices beside the first"] += 1
                continue
            call = by_span[one.span_id]
            try:
                messages = for_template(conversation(call))
                tools = for_template_tools(call.request.get("tools"))
            except BadChat as error:
                dropped[f"calls: {error}"] += 1
                continue
            asked = messages[:-1]
            going_on = [item for item in told if item.goes_on_in(one.agent, tools, asked)]
            longest = max(going_on, key=lambda item: len(item.messages), default=None)
            if longest is None:
                longest = Conversation(one.agent, tools, messages)
                told.append(longest)
            longest.messages = messages
            longest.replies.add(len(asked))
        return told


def _texts(messages: Iterable[Message]) -> list[str]:
    """What must be found in the tokens of these messages: their text, and the tools they call."""
    found = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            found.append(content.strip())
        calls = message.get("tool_calls") or ()
        found += [str((call.get("function") or {}).get("name") or "") for call in calls]
    return found
