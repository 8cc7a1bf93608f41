"""What a person should know about a rollout's samples, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from agentlightning import semconv
from agentlightning.records import AGENT_VERSION, Rollout, Span
from agentlightning.samples.calls import RecordedCall, agent_name, final_spans, is_retry
from agentlightning.samples.failures import failure_of
from agentlightning.samples.merging import Placement
from agentlightning.samples.reasons import Reason
from agentlightning.samples.rewards import outcome_reward, read_rewards
from agentlightning.samples.types import CreditRules


def notes(
    rollout: Rollout,
    spans: Sequence[Span],
    rules: CreditRules,
    calls: Sequence[RecordedCall],
    placements: Sequence[Placement],
) -> Iterator[str]:
    """The notes of an explanation, most pressing first."""
    mine = final_spans(rollout, spans)
    yield from _about_the_rollout(rollout, mine)
    yield from _about_refused_calls(mine)
    if not calls:
        yield (
            "no LLM call was recorded. Recorded are calls of the openai client and of the anthropic "
            "client within the rollout, of httpx to such an API, and requests to the rollout's "
            "endpoint: let the agent call its model in one of these ways, in the process and the "
            "threads that the rollout runs in"
        )
    yield from _about_failed_calls(calls, placements)
    yield from _about_routes(calls, placements)
    yield from _about_agents(mine, calls, placements)
    yield from _about_token_ids(calls, placements)
    yield from _about_rewards(rollout, mine, rules)
    yield from _about_other_spans(rollout, spans, mine)


def _about_the_rollout(rollout: Rollout, mine: Sequence[Span]) -> Iterator[str]:
    if rollout.status in ("queued", "running"):
        yield f"the rollout is {rollout.status}: this is what has been recorded so far"
    elif rollout.status != "succeeded":
        yield f"the rollout {rollout.status}{_why_it_ended(rollout, mine)}"
    if rollout.mode != "train":
        yield f"a rollout of mode {rollout.mode!r} is scored, not trained on"


def _why_it_ended(rollout: Rollout, mine: Sequence[Span]) -> str:
    """What the attempt's own span says it ended with; a worker that died left none."""
    own = [span for span in mine if span.parent_id is None and span.kind == "agent"]
    if rollout.status == "failed" and not own:
        return ": its worker died, or was not heard of in time, before the attempt was over"
    return "".join(f": {failure}" for span in own if (failure := failure_of(span)))


def _about_refused_calls(mine: Sequence[Span]) -> Iterator[str]:
    refused = [span.attributes.get(semconv.REFUSED_CALLS) for span in mine if span.parent_id is None]
    for count in refused:
        if count:
            yield (
                f"{count} LLM calls were refused in strict mode, since nobody decided where they go: "
                "serve a model for their agents, let a resolver return a Route or Passthrough for "
                "them, or set `strict: false`"
            )


def _about_routes(calls: Sequence[RecordedCall], placements: Sequence[Placement]) -> Iterator[str]:
    """Where calls went that nobody sent to a model under training, if there are no others."""
    if any(item.row is not None for item in placements):
        return
    routes = Counter(
        (str(item.span.attributes.get(semconv.ROUTE, "")), item.call.base_url) for item in calls
    )
    if any(not route.startswith(("unrouted", "passthrough")) for route, _ in routes):
        return
    for (route, base_url), count in routes.most_common():
        how, _, reason = route.partition(": ")
        if how == "passthrough":
            yield f"{count} calls to {base_url} were left alone on purpose: {reason}"
        elif how.startswith("unrouted"):
            yield (
                f"{count} calls to {base_url} were routed by nobody and went where the agent sends "
                "them. To train on them, serve a model in the run (an engine, or an LLM resource), see "
                "that trained_agents names their agents, or have the agent ask the rollout's endpoint"
            )


def _about_failed_calls(
    calls: Sequence[RecordedCall], placements: Sequence[Placement]
) -> Iterator[str]:
    if any(item.row is not None for item in placements):
        return
    errors = Counter(item.call.error for item in calls if item.call.error)
    for error, count in errors.most_common():
        yield f"{count} calls failed: {error}"


def _about_agents(
    mine: Sequence[Span], calls: Sequence[RecordedCall], placements: Sequence[Placement]
) -> Iterator[str]:
    others = sum(item.dropped is Reason.OTHER_AGENT for item in placements)
    if not others or others < len(placements):
        return
    seen = {call.agent for call in calls if call.agent} | {
        agent_name(span) for span in mine if span.kind == "agent" and span.parent_id is not None
    }
    yield (
        f"no call is of an agent that is trained; agents seen: {', '.join(sorted(seen)) or 'none'}"
        + ("" if seen else ". Install the adapter of the agent's framework, which tells their names")
    )


def _about_token_ids(calls: Sequence[RecordedCall], placements: Sequence[Placement]) -> Iterator[str]:
    without = {item.transition.span_id for item in placements if item.dropped is Reason.NO_TOKEN_IDS}
    where = Counter(
        (item.call.base_url, item.call.model) for item in calls if item.span.span_id in without
    )
    for (base_url, model), count in where.most_common():
        yield (
            f"{count} calls went to {base_url} (model {model}), which returned no token ids: RL cannot "
            "train on them; prompt optimisation and SFT can"
        )


def _about_rewards(rollout: Rollout, mine: Sequence[Span], rules: CreditRules) -> Iterator[str]:
    chosen = outcome_reward(rollout, mine, rules)
    if chosen.source is not None and chosen.value is None:
        yield f"the rollout is {chosen.rule}"
    readings = read_rewards(mine)
    ours = [
        item for item in readings if (item.name, item.version) == (rules.reward_name, rules.version)
    ]
    if ours:
        return
    if rules.version == AGENT_VERSION:
        yield (
            f"no reward {rules.reward_name!r} was recorded: return a number from the agent, call "
            "emit_reward in it, or give a reward_function"
        )
    else:
        yield (
            f"no reward {rules.reward_name!r} of version {rules.version!r} was recorded: give one with "
            f"agl rescore {rollout.run_id} --version {rules.version}, or name another reward_version"
        )
    seen = sorted({(item.name, item.version) for item in readings})
    if seen:
        listed = ", ".join(f"{name!r} (version {version!r})" for name, version in seen)
        yield f"rewards seen under another name or version: {listed}"


def _about_other_spans(rollout: Rollout, spans: Sequence[Span], mine: Sequence[Span]) -> Iterator[str]:
    earlier = sum(span.rollout_id == rollout.rollout_id for span in spans) - len(mine)
    if earlier:
        yield f"{earlier} spans of other attempts than the last ({rollout.attempt}) are not used"
    by_id = {span.span_id: span for span in mine}
    retries = sum(is_retry(span, by_id) for span in mine)
    if retries:
        yield f"{retries} tries of calls failed and were sent again; only the last one of a call counts"
