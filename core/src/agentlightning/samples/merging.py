"""From transitions to training rows: what is merged, dropped or split, and nothing uncounted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from agentlightning.records import AttemptKey, Floats, Tokens
from agentlightning.samples.reasons import Reason
from agentlightning.samples.trajectories import Trajectory, longest_continued, why_apart
from agentlightning.samples.types import (
    NO_LIMITS,
    Fidelity,
    Level,
    Limits,
    Row,
    Transition,
    Turn,
)

_FLOAT: Final = 4  # bytes of a packed number


@dataclass(frozen=True)
class Placement:
    """What became of one transition.

    Attributes:
        row: its row, as an index; None if it was dropped.
        dropped: why it has no row.
        split: why it starts a row beside the others of its attempt.
        merged: whether it continues a row that another call began.
    """

    transition: Transition
    row: int | None = None
    dropped: Reason | None = None
    split: Reason | None = None
    merged: bool = False


def rows(
    transitions: Sequence[Transition], level: Level = "transition", limits: Limits = NO_LIMITS
) -> tuple[list[Row], Fidelity]:
    """Training rows, and the account of what became of every transition.

    At level ``transition`` each usable call is a row. At level ``trajectory`` a call whose prompt
    starts with the whole of an open trajectory of its attempt and agent (prompt and response of its
    last call, token for token) is merged into it, the longest if several fit; tokens between two
    responses are kept, unmasked. Anything else starts a row, and the reason is counted. Sampled ids
    are never replaced and every one is trained exactly once.

    Args:
        transitions: of any number of rollouts, each in the order of its calls.
        level: what a row is.
        limits: above which calls are dropped and rows split.
    """
    placements, built = place(transitions, level, limits)
    return built, fidelity(placements, built)


def place(
    transitions: Sequence[Transition], level: Level, limits: Limits
) -> tuple[list[Placement], list[Row]]:
    """Where each transition went, in their order, and the rows."""
    open_ones: dict[AttemptKey, list[Trajectory]] = {}
    numbers: dict[Trajectory, int] = {}
    placements = []
    for one in transitions:
        of_attempt = open_ones.setdefault(AttemptKey(one.rollout_id, one.attempt), [])
        dropped = one.dropped or _unfit(one, limits)
        fits, split = (None, None) if dropped else _find(of_attempt, one, level, limits)
        if not dropped and fits is None and _above(limits.max_prompt_tokens, len(one.prompt_ids)):
            dropped = Reason.PROMPT_TOO_LONG
        if dropped:
            placements.append(Placement(one, dropped=dropped))
        elif fits is None:
            started = Trajectory(one)
            of_attempt.append(started)
            numbers[started] = len(numbers)
            placements.append(Placement(one, row=numbers[started], split=split))
        else:
            fits.turns.append(one)
            placements.append(Placement(one, row=numbers[fits], merged=True))
    return placements, _rows(list(numbers))


def fidelity(placements: Iterable[Placement], built: Sequence[Row]) -> Fidelity:
    """The placements in numbers."""
    every = list(placements)
    return Fidelity(
        calls=len(every),
        used=sum(item.row is not None for item in every),
        merged=sum(item.merged for item in every),
        rows=len(built),
        sampled_tokens=sum(len(item.transition.response_ids) for item in every),
        trained_tokens=sum(row.mask.count(1) for row in built),
        dropped=dict(Counter(item.dropped.key for item in every if item.dropped)),
        split=dict(Counter(item.split.key for item in every if item.split)),
    )


def _above(limit: int | None, size: int) -> bool:
    return limit is not None and size > limit


def _unfit(one: Transition, limits: Limits) -> Reason | None:
    """Why a usable call has no row even so: it breaks a limit, or was not made by ``transitions``."""
    if not one.prompt_ids:
        return Reason.EMPTY_PROMPT
    if not one.response_ids:
        return Reason.EMPTY_RESPONSE
    if one.logprobs is not None and len(one.logprobs) != len(one.response_ids):
        return Reason.COUNT_MISMATCH
    if _above(limits.max_response_tokens, len(one.response_ids)):
        return Reason.RESPONSE_TOO_LONG
    # A row ends with its last call, whose prompt holds everything before: merging makes none longer.
    if _above(limits.max_row_tokens, len(one.prompt_ids) + len(one.response_ids)):
        return Reason.ROW_TOO_LONG
    return None


def _find(
    of_attempt: Sequence[Trajectory], one: Transition, level: Level, limits: Limits
) -> tuple[Trajectory | None, Reason | None]:
    """The trajectory that ``one`` goes on with; or None, and why it starts another."""
    if level == "transition" or not of_attempt:
        return None, None
    same_agent = [item for item in of_attempt if item.agent == one.agent]
    fits = longest_continued(same_agent, one.prompt_ids)
    if fits is None:
        return None, why_apart(of_attempt, one)
    if limits.window is not None and len(fits.turns) >= limits.window:
        return None, Reason.WINDOW_FULL
    return fits, None


def _rows(trajectories: Sequence[Trajectory]) -> list[Row]:
    calls = Counter(turn.rollout_id for item in trajectories for turn in item.turns)
    return [
        _row(item, weight=len(item.turns) / calls[item.turns[0].rollout_id]) for item in trajectories
    ]


def _row(trajectory: Trajectory, weight: float) -> Row:
    """Lay the turns behind each other, in whole blocks: linear in the tokens each call added."""
    first = trajectory.turns[0]
    ids, logprobs, mask, turns = [], [], [], []
    position, known = 0, len(first.prompt_ids)
    for turn in trajectory.turns:
        between = turn.prompt_ids[known:]
        start, end = position + len(between), position + len(between) + len(turn.response_ids)
        ids += [between.to_bytes(), turn.response_ids.to_bytes()]
        mask += [bytes(len(between)), b"\x01" * len(turn.response_ids)]
        if turn.logprobs is not None:
            logprobs += [bytes(_FLOAT * len(between)), turn.logprobs.to_bytes()]
        turns.append(_turn(turn, start, end))
        position, known = end, len(turn.prompt_ids) + len(turn.response_ids)
    has_logprobs = all(turn.logprobs is not None for turn in trajectory.turns)
    return Row(
        rollout_id=first.rollout_id,
        attempt=first.attempt,
        group_id=first.group_id,
        agent=first.agent,
        prompt_ids=first.prompt_ids,
        response_ids=Tokens.from_bytes(b"".join(ids)),
        mask=b"".join(mask),
        logprobs=Floats.from_bytes(b"".join(logprobs)) if has_logprobs else None,
        turns=tuple(turns),
        weight=weight,
    )


def _turn(one: Transition, start: int, end: int) -> Turn:
    return Turn(
        seq=one.seq,
        choice=one.choice,
        start=start,
        end=end,
        reward=one.reward,
        model_version=one.model_version,
        temperature=one.temperature,
        finish_reason=one.finish_reason,
    )
