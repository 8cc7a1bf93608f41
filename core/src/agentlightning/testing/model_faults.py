"""What can go wrong with one reply of a model server."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from agentlightning.testing.model_script import Turn


@dataclass(frozen=True)
class Fault:
    """A reply that does not come as it should. With nothing set, it comes as scripted.

    Attributes:
        turn: what the model says; None for what is scripted.
        status: an error of this HTTP status comes instead, in the protocol's own shape.
        lost: the connection ends after the request, without a byte of reply.
        cut_after: a stream's connection breaks after this many events.
        malformed_after: an event that is not JSON comes after this many events of a stream.
        piece_s: seconds before each event of a stream.
        wait_after: a stream goes on after this many events only when ``wait_for`` is set.
        without_ids: token ids and log-probabilities are left out though they were asked for.
    """

    turn: Turn | None = None
    status: int | None = None
    lost: bool = False
    cut_after: int | None = None
    malformed_after: int | None = None
    piece_s: float = 0.0
    wait_after: int = 1
    wait_for: threading.Event | None = None
    without_ids: bool = False
