"""Trajectories under construction: what continues what, and why something does not."""

from __future__ import annotations

from collections.abc import Sequence

from agentlightning.records import Tokens
from agentlightning.samples.reasons import Reason
from agentlightning.samples.types import Transition


class Trajectory:
    """Calls of one agent, each of which continues the one before it, token for token."""

    def __init__(self, first: Transition) -> None:
        self.turns = [first]

    @property
    def agent(self) -> str | None:
        """The agent whose calls these are."""
        return self.turns[0].agent

    @property
    def length(self) -> int:
        """Tokens up to the end of the last response."""
        last = self.turns[-1]
        return len(last.prompt_ids) + len(last.response_ids)

    def is_continued_by(self, prompt: Tokens) -> bool:
        """Whether ``prompt`` starts with the last prompt and the last response, token for token."""
        last = self.turns[-1]
        known, end = len(last.prompt_ids), self.length
        return (
            end <= len(prompt)
            and prompt[end - 1] == last.response_ids[-1]  # cheap, and settles nearly every "no"
            and prompt[known:end] == last.response_ids
            and prompt.startswith(last.prompt_ids)
        )

    def shared_with(self, prompt: Tokens) -> int:
        """How many tokens ``prompt`` has in common with this trajectory before they part."""
        last = self.turns[-1]
        shared = common_prefix(last.prompt_ids, prompt)
        if shared < len(last.prompt_ids):
            return shared
        return shared + common_prefix(last.response_ids, prompt[shared : self.length])

    def was_sampled(self, position: int) -> bool:
        """Whether the token at ``position`` is one that the model sampled."""
        return any(
            len(turn.prompt_ids) <= position < len(turn.prompt_ids) + len(turn.response_ids)
            for turn in self.turns
        )


def longest_continued(trajectories: Sequence[Trajectory], prompt: Tokens) -> Trajectory | None:
    """The longest trajectory that ``prompt`` continues; the latest of equals."""
    best: Trajectory | None = None
    for one in trajectories:
        if (best is None or one.length >= best.length) and one.is_continued_by(prompt):
            best = one
    return best


def why_apart(open_ones: Sequence[Trajectory], new: Transition) -> Reason:
    """Why a call that continues no trajectory of its agent starts one of its own.

    Told from the token ids alone, against the trajectory of the same agent that shares most:
    they part within sampled tokens, so the reply came back as other ids; or behind the first reply,
    or before one that is still there word for word, so the history was changed; or the new prompt
    ends first, so it was asked before; or there is nothing that says they belong together.
    """
    same_agent = [one for one in open_ones if one.agent == new.agent]
    others = [one for one in open_ones if one.agent != new.agent]
    if not same_agent or longest_continued(others, new.prompt_ids) is not None:
        return Reason.DIFFERENT_AGENT
    closest, shared = _closest(same_agent, new.prompt_ids)
    if shared == len(new.prompt_ids):
        return Reason.SAME_PROMPT
    if closest.was_sampled(shared):
        return Reason.RETOKENISED
    first, last = closest.turns[0], closest.turns[-1]
    kept = holds(new.prompt_ids[shared:], last.response_ids)
    return Reason.HISTORY_EDITED if shared >= len(first.prompt_ids) or kept else Reason.OTHER_TRAJECTORY


def common_prefix(left: Tokens, right: Tokens) -> int:
    """How many leading tokens two sequences share, by halving: each step compares whole blocks."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def holds(tokens: Tokens, part: Tokens) -> bool:
    """Whether ``part`` occurs in ``tokens`` as it is, anywhere."""
    width, data, wanted = 4, tokens.to_bytes(), part.to_bytes()
    found = data.find(wanted)
    while found >= 0 and found % width:
        found = data.find(wanted, found + 1)
    return found >= 0


def _closest(trajectories: Sequence[Trajectory], prompt: Tokens) -> tuple[Trajectory, int]:
    best, shared = trajectories[-1], -1
    for one in reversed(trajectories):
        known = one.turns[-1].prompt_ids
        # To share more than the best so far they must agree in the next token: most do not.
        if 0 <= shared < min(len(known), len(prompt)) and known[shared] != prompt[shared]:
            continue
        found = one.shared_with(prompt)
        if found > shared:
            best, shared = one, found
    return best, shared
