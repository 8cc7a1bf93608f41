"""The calls of an attempt so far: which request is a new one, and which another try."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agentlightning.endpoint.memory import Memory
from agentlightning.records import AttemptKey, Mode

if TYPE_CHECKING:
    from agentlightning.endpoint.exchange import Exchange

_CALLS: Final = 64


@dataclass
class Call:
    """One LLM call of an agent, whatever number of tries its client makes.

    Attributes:
        seq: its place in the attempt. span_id: of the span it is recorded under.
        is_named: whether the span id came with the request; whoever sent it then writes the call itself
            if it fails for good.
        is_recorded: whether the span id is taken.
        tries: how often it was sent before the try under way.
        exchange: the try under way or the one that succeeded, for further tries to listen to.
    """

    seq: int
    span_id: str
    is_named: bool
    is_recorded: bool = False
    tries: int = 0
    exchange: Exchange | None = None


@dataclass
class AttemptState:
    """What the endpoint knows about an attempt.

    Attributes:
        memory: what its calls left to refer to.
        looked_at: when it was last known to run; ``called_at``: when it last called.
    """

    key: AttemptKey
    run_id: str
    mode: Mode
    token: str
    looked_at: float = 0.0
    called_at: float = 0.0
    memory: Memory = field(default_factory=Memory)
    _last_seq: int = 0
    _calls: OrderedDict[Hashable, Call] = field(default_factory=OrderedDict)

    def call(
        self, api: str, span_id: str | None, *, retry: int, body: bytes, seq: int | None = None
    ) -> Call:
        """The call a request belongs to: a new one, or the one it is another try of.

        A span id names the call. Without one, a client's retry belongs to the last call with the same
        body; the same body that is not a retry is a new call (histories may repeat).

        Args:
            api: the protocol.
            span_id: the id sent along, if any.
            retry: how often the client says it has tried before.
            body: the request as it came.
            seq: the place of the call as the sender counts it; None counts here.
        """
        identity = span_id or (api, hashlib.blake2b(body, digest_size=16).digest())
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
