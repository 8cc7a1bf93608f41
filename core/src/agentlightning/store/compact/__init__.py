"""Compact storage of LLM calls: what a call repeats of an earlier one of its attempt is not kept again.

The prompts of an attempt repeat each other: turn 32 sends all that turn 31 sent and received, and a
little more. So a call is kept as the difference to an earlier call of the same attempt, its *base*::

    call 1   prompt ids  ─────────────────┐ reply ids ──┐
    call 2   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒┤ new ids ──┐ reply ids ──┐
             kept as: base = call 1, the first n ids of its prompt and reply

The base is whichever call of the attempt shares most, not just the one before, so edited histories and
sub-agents that take turns share as well. The same is done for the request's messages and tools, and
for whatever else a call has in common with its base. It counts on no general compressor.

A backend packs what it inserts with a :class:`CallPacker` and reads whole attempts with
:func:`unpack`, which also reads calls that were stored as plain MessagePack.

The files: ``ids`` writes token ids in few bits, ``parts`` takes a call apart into encoded values,
``fold`` leaves out of them what is known already, ``delta`` is a row, ``reading`` follows the bases
and ``packer`` remembers which calls can be one.
"""

from agentlightning.store.compact.packer import CallPacker, Packing
from agentlightning.store.compact.reading import unpack

__all__ = ["CallPacker", "Packing", "unpack"]
