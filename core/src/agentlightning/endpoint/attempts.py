"""Who is calling: the attempt behind a request, and its right to call."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agentlightning.endpoint.calls import AttemptState
from agentlightning.endpoint.replies import Refused
from agentlightning.errors import StoreError, UnknownAttempt, UnknownRollout
from agentlightning.records import AttemptKey, Rollout
from agentlightning.store import RolloutQuery, Store

_logger = logging.getLogger("agentlightning.endpoint")

_LOOK_AGAIN_S: Final = 2.0
"""All attempts that called lately are looked up together this often, so that no call waits for that."""

_LATELY_S: Final = 60.0
_TRUST_S: Final = 10.0
"""How old what is known of an attempt may be; beyond that, its call is looked up by itself."""

_ATTEMPTS: Final = 4096


class Attempts:
    """Admits requests; used on the server's event loop only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[AttemptKey, AttemptState] = OrderedDict()
        self._lookups: dict[tuple[AttemptKey, str], asyncio.Task[Rollout]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def admit(self, key: AttemptKey, tokens: Sequence[str]) -> AttemptState:
        """The attempt ``key``, if one of ``tokens`` is its own and it still runs.

        Raises:
            Refused: 401 for a wrong token, 404 for an unknown rollout, 410 for an attempt that is
                over, 503 when the store cannot be asked.
        """
        state = self._known.get(key)
        if state is not None and any(_same(state.token, token) for token in tokens):
            self._known.move_to_end(key)
            now = state.called_at = time.monotonic()
            if now - state.looked_at < _TRUST_S:
                return state
        rollout, token = await self._look_up(key, tokens)
        state = self._known.get(key)  # perhaps made by another request meanwhile
        if state is None:
            state = self._known[key] = AttemptState(key, rollout.run_id, rollout.mode, token)
            if len(self._known) > _ATTEMPTS:
                self._known.popitem(last=False)
        state.looked_at = state.called_at = time.monotonic()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._keep_looking())
        return state

    def stop(self) -> None:
        """Look up nothing more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look_up(self, key: AttemptKey, tokens: Sequence[str]) -> tuple[Rollout, str]:
        refused = Refused(401, f"wrong or missing token for {_name(key)}", "unauthorised")
        for token in tokens:
            try:
                return await self._look_up_once(key, token), token
            except Refused as error:
                if error.code != "unauthorised":
                    raise
                refused = error
        raise refused

    async def _look_up_once(self, key: AttemptKey, token: str) -> Rollout:
        """Ask the store in a thread, once for all requests that wait for the same answer.

        They go on in the order they came, so that calls are numbered as they arrived.
        """
        task = self._lookups.get((key, token))
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(_running_rollout, self._store, key, token))
            self._lookups[key, token] = task
            task.add_done_callback(lambda _: self._lookups.pop((key, token), None))
        return await asyncio.shield(task)

    async def _keep_looking(self) -> None:
        """Look up all attempts that called lately, again and again until there are none."""
        while True:
            await asyncio.sleep(_LOOK_AGAIN_S)
            since = time.monotonic() - _LATELY_S
            keys = [key for key, state in self._known.items() if state.called_at > since]
            if not keys:
                return
            try:
                ids = {key.rollout_id for key in keys}
                found = await asyncio.to_thread(_rollouts, self._store, ids)
            except StoreError as error:  # calls go on until what is known is too old, and then say so
                _logger.warning("whether attempts still run cannot be looked up: %s", error)
                continue
            self._learn(keys, found)

    def _learn(self, keys: Iterable[AttemptKey], found: Mapping[str, Rollout]) -> None:
        now = time.monotonic()
        for key in keys:
            state, rollout = self._known.get(key), found.get(key.rollout_id)
            if rollout is None or not _runs(rollout, key):
                self._known.pop(key, None)  # its next call is looked up, and told why it is refused
            elif state is not None:
                state.looked_at = now


def _running_rollout(store: Store, key: AttemptKey, token: str) -> Rollout:
    try:
        if not store.check_token(key, token):
            raise Refused(401, f"wrong or missing token for {_name(key)}", "unauthorised")
        rollout = _rollouts(store, (key.rollout_id,)).get(key.rollout_id)
    except (UnknownRollout, UnknownAttempt) as error:
        raise Refused(404, str(error), "unknown_rollout") from error
    except StoreError as error:
        raise Refused(503, f"the store cannot be asked: {error}", "store_unavailable") from error
    if rollout is None:
        raise Refused(404, f"there is no rollout {key.rollout_id}", "unknown_rollout")
    if not _runs(rollout, key):
        raise Refused(
            410,
            f"{_name(key)} is over (its rollout is {rollout.status}); the call was not made",
            "late_call",
        )
    return rollout


def _rollouts(store: Store, rollout_ids: Iterable[str]) -> dict[str, Rollout]:
    ids = tuple(rollout_ids)
    page = store.rollouts(RolloutQuery(rollout_ids=ids, limit=max(1, len(ids))))
    return {rollout.rollout_id: rollout for rollout in page.items}


def _runs(rollout: Rollout, key: AttemptKey) -> bool:
    return rollout.status == "running" and rollout.attempt == key.number


def _same(known: str, shown: str) -> bool:
    return hmac.compare_digest(known.encode(), shown.encode("utf-8", "surrogatepass"))


def _name(key: AttemptKey) -> str:
    return f"attempt {key.number} of rollout {key.rollout_id}"
