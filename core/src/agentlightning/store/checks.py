"""What may enter a store: finite numbers, text that is UTF-8, known words, sensible limits.

Everything is checked before anything is written, so that no backend meets a value it cannot keep.
Each function returns what to store: the value itself where nothing had to be made plain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from agentlightning.errors import BadValue, RewardError
from agentlightning.records import (
    JSON,
    LLM,
    Data,
    LLMCall,
    Outcome,
    OutcomeStatus,
    Resources,
    RolloutConfig,
    RolloutRequest,
    RunStatus,
    Span,
    SpanKind,
    SpanStatus,
    as_json,
    as_resource,
    from_builtins,
    to_builtins,
)
from agentlightning.records.resources import Resource
from agentlightning.store.types import Result

T = TypeVar("T")

_RUN_STATUSES = frozenset(get_args(RunStatus))
_OUTCOMES = frozenset(get_args(OutcomeStatus))
_KINDS = frozenset(get_args(SpanKind))
_SPAN_STATUSES = frozenset(get_args(SpanStatus))
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MOST = 2**31 - 1


def json_value(value: object, what: str) -> JSON:
    """``value`` as plain JSON of its own: a later change to what the caller holds is not stored."""
    if _is_plain(value, any_int=True):
        return to_builtins(value)  # a copy, made by C
    copied = as_json(value, what)
    if not _is_plain(copied, any_int=True):
        _refuse_text(copied, what)
    return copied


def json_object(value: object, what: str) -> dict[str, JSON]:
    """``value`` as a plain JSON object."""
    if not isinstance(value, Mapping):
        raise BadValue(f"{what} is a {type(value).__name__}; expected a dict with string keys")
    checked: dict[str, JSON] = json_value(value, what)
    return checked


def texts(**given: str | None) -> None:
    """Refuse a name, a key or a note that is no text, which no reply could carry.

    Args:
        given: each by what the message calls it; None is fine.
    """
    for name, value in given.items():
        if value is not None and not _is_plain(value):
            _refuse_text(value, name)


def run_status(status: str) -> RunStatus:
    """A status a run can have."""
    if status not in _RUN_STATUSES:
        raise BadValue(f"a run cannot be {status!r}; expected one of {sorted(_RUN_STATUSES)}")
    return status  # type: ignore[return-value]  # just checked


def request(given: RolloutRequest, number: int) -> RolloutRequest:
    """A request with every field of its type, its input and metadata plain JSON."""
    what = f"request {number}"
    plain = replace(
        given,
        input=json_value(given.input, f"{what}: input"),
        metadata=json_object(given.metadata, f"{what}: metadata"),
    )
    try:
        checked = from_builtins(to_builtins(plain), RolloutRequest)
    except msgspec.ValidationError as error:
        raise BadValue(f"{what}: {error}") from error
    if checked.group_id is not None:
        texts(**{f"{what}: group_id": checked.group_id})
    rollout_limits(checked.config, f"{what}: config")
    if not _INT_MIN <= checked.priority <= _INT_MAX:
        raise BadValue(f"{what}: priority is {checked.priority}; expected a 64-bit integer")
    return checked


def rollout_limits(config: RolloutConfig, what: str) -> None:
    """Refuse limits under which nothing could be run."""
    limits = {
        "max_attempts": (config.max_attempts >= 1, "at least 1"),
        "max_lost": (config.max_lost >= 0, "at least 0"),
        "lease_s": (0 < config.lease_s < math.inf, "more than 0 seconds"),
        "timeout_s": (
            config.timeout_s is None or 0 < config.timeout_s < math.inf,
            "more than 0 seconds, or None for no limit",
        ),
    }
    for name, (ok, expected) in limits.items():
        if not ok:
            raise BadValue(f"{what}.{name} is {getattr(config, name)}; expected {expected}")


def limit(given: int) -> None:
    """Refuse to ask for nothing, or for more than there can be."""
    if given < 1:
        raise BadValue(f"limit is {given}; expected at least 1")
    if given > _MOST:
        raise BadValue(f"limit is {given}; expected at most {_MOST}")


def outcome(given: Outcome, what: str) -> Outcome:
    """An outcome that an attempt can end with."""
    if given.status not in _OUTCOMES:
        raise BadValue(f"{what}: an attempt cannot end {given.status!r}; expected {sorted(_OUTCOMES)}")
    error = None if given.error is None else json_value(str(given.error), f"{what}: error")
    return replace(given, error=error, output=json_value(given.output, f"{what}: output"))


def results(given: Sequence[Result]) -> list[Result]:
    """Results whose spans belong to the attempt they came with."""
    checked = []
    for result in given:
        what = f"result of attempt {result.key.number} of rollout {result.key.rollout_id}"
        for item in result.spans:
            if (item.rollout_id, item.attempt) != result.key:
                raise BadValue(
                    f"{what}: span {item.span_id} is of attempt {item.attempt} of rollout "
                    f"{item.rollout_id}; send it with that one, or by add_spans"
                )
        checked.append(
            replace(
                result,
                outcome=outcome(given=result.outcome, what=what),
                spans=tuple(map(span, result.spans)),
            )
        )
    return checked


def span(given: Span) -> Span:
    """A span whose words are known and whose values every backend can keep."""
    if given.kind not in _KINDS or given.status not in _SPAN_STATUSES:
        raise BadValue(
            f"span {given.span_id}: kind {given.kind!r}, status {given.status!r}; expected a kind of "
            f"{sorted(_KINDS)} and a status of {sorted(_SPAN_STATUSES)}"
        )
    texts = [given.span_id, given.trace_id, given.name, given.parent_id]
    if not _is_plain(texts):
        _refuse_text(texts, f"span {given.span_id!r}")
    if not (isinstance(given.start_ns, int) and isinstance(given.end_ns, int)):
        raise BadValue(f"span {given.span_id}: start_ns and end_ns are nanoseconds, as int")
    if not _is_plain(given.attributes):
        given = replace(given, attributes=_small(given.attributes, f"span {given.span_id}: attributes"))
    if given.events:
        _events(given)
    return given if given.call is None else replace(given, call=_call(given.call, given.span_id))


def resources(given: Resources) -> dict[str, Resource]:
    """Resources as a dict of their own, plain JSON values wrapped."""
    checked: dict[str, Resource] = {}
    for name, value in given.items():
        what = f"resource {name!r}"
        resource = as_resource(value, name)
        if isinstance(resource, Data):
            resource = replace(resource, value=json_value(resource.value, what))
        elif isinstance(resource, LLM):
            resource = replace(resource, sampling=json_object(resource.sampling, f"{what}: sampling"))
        json_value(to_builtins(resource), what)  # the other fields' text
        checked[json_value(name, "a resource's name")] = resource
    return checked


def record(given: T, what: str) -> T:
    """A record with every field of its type and all its values such that every backend keeps them."""
    plain = json_value(to_builtins(given), what)
    try:
        return from_builtins(plain, type(given))
    except msgspec.ValidationError as error:
        raise BadValue(f"{what}: {error}") from error


def numbers(given: Mapping[str, float], what: str) -> dict[str, float]:
    """Finite numbers by name."""
    json_object(dict.fromkeys(given), what)  # the names
    return {name: _finite(value, f"{what}: {name}") for name, value in given.items()}


def reward(rollout_id: str, value: object) -> float | None:
    """A reward that is a finite number, or None for unscored.

    Raises:
        RewardError: it is not; the message has the rollout's id.
    """
    if value is None:
        return None
    try:
        return _finite(value, f"the reward of rollout {rollout_id}")
    except BadValue as error:
        raise RewardError(f"{error}; leave a rollout unscored with None") from None


def _finite(value: object, what: str) -> float:
    if not isinstance(value, int | float):
        raise BadValue(f"{what} is a {type(value).__name__}; expected a number")
    if not math.isfinite(value):
        raise BadValue(f"{what} is {value}; expected a finite number")
    return float(value)


def _events(given: Span) -> None:
    for event in given.events:
        what = f"span {given.span_id}: event {event.name!r}"
        if not (_is_plain(event.name) and _is_plain(event.time_ns)):
            _refuse_text([event.name, event.time_ns], what)
        if not _is_plain(event.attributes):
            _small(event.attributes, what)


def _call(call: LLMCall, span_id: str) -> LLMCall:
    what = f"span {span_id}: call"
    for choice in call.choices:
        if choice.logprobs is not None and not choice.logprobs.are_finite():
            raise BadValue(
                f"{what}: choice {choice.index} has a log-probability that is not finite; leave "
                "logprobs out (None) where the model gave none"
            )
    choices = tuple(
        choice
        if _is_plain(choice.message)
        else replace(choice, message=_small(choice.message, f"{what}: message"))
        for choice in call.choices
    )
    changed = {
        name: _small(value, f"{what}: {name}")
        for name in ("request", "response", "usage", "temperature", "model", "error", "agent")
        if (value := getattr(call, name)) is not None and not _is_plain(value)
    }
    if changed or choices != call.choices:
        return replace(call, choices=choices, **changed)
    return call


def _small(value: object, what: str) -> Any:
    """Plain JSON whose integers fit 64 bits, which is what packed spans can hold."""
    copied = as_json(value, what)
    if not _is_plain(copied):
        _refuse_text(copied, what)
    return copied


def _is_plain(value: object, *, any_int: bool = False) -> bool:
    """Whether ``value`` can be stored as it is; quick, because every span passes here."""
    try:
        return _plain(value, any_int)
    except RecursionError:
        return False  # ``as_json`` has the words for it


def _plain(value: Any, any_int: bool) -> bool:
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_utf8(value)
    if kind is int:
        return any_int or _INT_MIN <= value <= _INT_MAX
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        return _plain_object(value, any_int)
    if kind is list:
        return all(_plain(item, any_int) for item in value)
    return value is None or kind is bool


def _plain_object(value: dict[Any, Any], any_int: bool) -> bool:
    for key, item in value.items():
        if type(key) is not str or not (key.isascii() or _is_utf8(key)):
            return False
        if type(item) is str and item.isascii():  # most attributes; spares them a call
            continue
        if not _plain(item, any_int):
            return False
    return True


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_text(value: object, what: str) -> None:
    """Raise ``BadValue`` at the first text or integer in ``value`` that cannot be stored."""
    if isinstance(value, str):
        if not _is_utf8(value):
            raise BadValue(
                f"{what} has half a surrogate pair, which is no text: {value[:40]!r}; replace it, "
                'for example by value.encode("utf-8", "replace").decode()'
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_text(key, f"{what}: a key")
            _refuse_text(item, f"{what}[{key!r}]")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_text(item, f"{what}[{index}]")
    elif isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        raise BadValue(f"{what} is {value}, more than 64 bits hold; write it as text")
    elif not isinstance(value, int | float | None):
        raise BadValue(f"{what} is a {type(value).__name__}; expected text or a number")
