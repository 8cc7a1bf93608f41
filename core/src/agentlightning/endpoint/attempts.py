"""Who is calling: the attempt behind a request, its right to call, and its calls so far."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from agentlightning.endpoint.replies import Answer, Refused
from agentlightning.errors import StoreError, UnknownAttempt, UnknownRollout
from agentlightning.records import AttemptKey, Mode, Rollout
from agentlightning.store import RolloutQuery, Store

# An attempt that is over is found out this much later at most, without a look into the store a call.
_LOOK_AGAIN_S: Final = 2.0
_ATTEMPTS: Final = 4096
_CALLS: Final = 64


@dataclass
class Call:
    """One LLM call of an agent, whatever number of tries its client makes.

    Attributes:
        seq: its place in the attempt. span_id: of the span it is recorded under.
        named: whether the span id came with the request; whoever sent it then writes the call itself
            if it fails for good.
        tries: how often it was sent before the try under way.
        under_way: the try that waits for the model, so that a further one can wait for the same.
        reply: what the agent got from the try that succeeded; a further one gets it again.
    """

    seq: int
    span_id: str
    named: bool
    tries: int = 0
    under_way: asyncio.Task[Answer] | None = None
    reply: Answer | None = None

    def span_of_failed_try(self) -> str:
        """The id of this try's own span: derived, so that the same try is never stored twice."""
        return hashlib.blake2b(f"{self.span_id}/{self.tries}".encode(), digest_size=8).hexdigest()


@dataclass
class AttemptState:
    """What the endpoint knows about an attempt."""

    key: AttemptKey
    run_id: str
    mode: Mode
    token: str
    looked_at: float
    _last_seq: int = 0
    _calls: OrderedDict[Hashable, Call] = field(default_factory=OrderedDict)

    def call(self, span_id: str | None, *, retry: int, body: bytes, seq: int | None = None) -> Call:
        """The call a request belongs to: a new one, or the one it is another try of.

        A span id names the call. Without one, a client's retry belongs to the last call with the same
        body; the same body that is not a retry is a new call (histories may repeat).

        Args:
            span_id: the id sent along, if any.
            retry: how often the client says it has tried before.
            body: the request as it came.
            seq: the place of the call as the sender counts it; None counts here.
        """
        identity = span_id or hash(body)
        known = self._calls.get(identity)
        if known is not None and (span_id is not None or retry > 0):
            known.tries = max(known.tries + 1, retry)
            return known
        if seq is None:
            seq = self._last_seq + 1
        self._last_seq = max(self._last_seq, seq)
        call = Call(seq, span_id or secrets.token_hex(8), span_id is not None, tries=retry)
        self._calls[identity] = call
        self._calls.move_to_end(identity)
        if len(self._calls) > _CALLS:
            self._calls.popitem(last=False)
        return call


class Attempts:
    """Admits requests; used on the server's event loop only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[AttemptKey, AttemptState] = OrderedDict()
        self._lookups: dict[tuple[AttemptKey, str], asyncio.Task[Rollout]] = {}

    async def admit(self, key: AttemptKey, token: str) -> AttemptState:
        """The attempt ``key``, if ``token`` is its own and it still runs.

        Raises:
            Refused: 401 for a wrong token, 404 for an unknown rollout, 410 for an attempt that is
                over, 503 when the store cannot be asked.
        """
        state = self._known.get(key)
        if state is not None and hmac.compare_digest(state.token.encode(), token.encode()):
            self._known.move_to_end(key)
            if time.monotonic() - state.looked_at < _LOOK_AGAIN_S:
                return state
        rollout = await self._look_up(key, token)
        state = self._known.get(key)  # perhaps made by another request meanwhile
        if state is None:
            state = AttemptState(key, rollout.run_id, rollout.mode, token, 0.0)
            self._known[key] = state
            if len(self._known) > _ATTEMPTS:
                self._known.popitem(last=False)
        state.looked_at = time.monotonic()
        return state

    async def _look_up(self, key: AttemptKey, token: str) -> Rollout:
        """Ask the store in a thread, once for all requests that wait for the same answer.

        They go on in the order they came, so that calls are numbered as they arrived.
        """
        task = self._lookups.get((key, token))
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(_running_rollout, self._store, key, token))
            self._lookups[key, token] = task
            task.add_done_callback(lambda _: self._lookups.pop((key, token), None))
        return await asyncio.shield(task)


def _running_rollout(store: Store, key: AttemptKey, token: str) -> Rollout:
    try:
        if not store.check_token(key, token):
            raise Refused(401, f"wrong or missing token for {_name(key)}", "unauthorised")
        found = store.rollouts(RolloutQuery(rollout_ids=(key.rollout_id,), limit=1)).items
    except (UnknownRollout, UnknownAttempt) as error:
        raise Refused(404, str(error), "unknown_rollout") from error
    except StoreError as error:
        raise Refused(503, f"the store cannot be asked: {error}", "store_unavailable") from error
    if not found:
        raise Refused(404, f"there is no rollout {key.rollout_id}", "unknown_rollout")
    rollout = found[0]
    if rollout.status != "running" or rollout.attempt != key.number:
        raise Refused(
            410,
            f"{_name(key)} is over (its rollout is {rollout.status}); the call was not made",
            "late_call",
        )
    return rollout


def _name(key: AttemptKey) -> str:
    return f"attempt {key.number} of rollout {key.rollout_id}"
