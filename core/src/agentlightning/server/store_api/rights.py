"""What a caller may ask for: the owner everything, a runner to work in its run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

import msgspec

from agentlightning.errors import Forbidden, Unauthorized
from agentlightning.records import AttemptKey
from agentlightning.server.store_api.access import Access, Caller
from agentlightning.store.http import messages as m
from agentlightning.store.http import operations as ops

AnyOperation: TypeAlias = ops.Operation[Any, Any]

_CLAIMING = frozenset({ops.CLAIM.name, ops.FINISH_AND_CLAIM.name})
_OF_A_RUN = frozenset({ops.RUN.name, ops.RESOURCES.name, ops.CHANGES.name}) | _CLAIMING
"""What a runner asks about one run; a runner of one run only about that."""


def check_role(operation: AnyOperation, caller: Caller) -> None:
    """Refuse who could not be allowed this whatever the body says.

    Raises:
        Forbidden: a runner asks for what is the owner's.
        Unauthorized: somebody with no more than an attempt's token does.
    """
    if caller.is_owner or operation.who == "attempts":
        return
    if caller.role == "attempt":
        raise Unauthorized(
            f"{operation.name} needs "
            + ("the owner's token" if operation.who == "owner" else "the owner's or a runner's token")
            + "; the one that came is neither (an attempt's token is good for that attempt only)"
        )
    if operation.who == "owner":
        raise Forbidden(
            f"{operation.name} is for the owner of the store, and the token is a runner's; use the "
            "owner's, which the server printed when it started"
        )


def check_request(
    access: Access, operation: AnyOperation, caller: Caller, request: msgspec.Struct
) -> None:
    """Refuse what reaches beyond the caller's own run and attempts.

    Raises:
        Forbidden: it does; the message names the run or the attempt.
        Unauthorized: the token is none that could be good for any of it.
    """
    if caller.is_owner:
        return
    if operation.who == "attempts":
        access.check_attempts(caller, _attempts_of(request), getattr(request, "tokens", {}))
    if operation.name in _CLAIMING and caller.role == "attempt":
        raise Forbidden(
            f"{operation.name} takes new work, for which an attempt's token is not good; send a "
            "runner's as the bearer token, and the attempts' in `tokens`"
        )
    if operation.name in _OF_A_RUN and caller.run_id is not None:
        run_id = getattr(request, "run_id", None)
        if run_id != caller.run_id:
            asked = "every run" if run_id is None else f"the run {run_id!r}"
            raise Forbidden(
                f"the token is good for the run {caller.run_id!r} only; {operation.name} was asked for "
                f"{asked}: name that run, or get a token for runners of every run from the owner"
            )


def _attempts_of(request: msgspec.Struct) -> Collection[AttemptKey]:
    match request:
        case m.AddSpans():
            return {AttemptKey(span.rollout_id, span.attempt) for span in request.spans}
        case m.Heartbeat():
            return request.attempts
        case m.Finish() | m.FinishAndClaim():
            return [result.key for result in request.results]
        case _:
            raise TypeError(f"{type(request).__name__} is about no attempts")
