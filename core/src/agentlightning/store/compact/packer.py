"""Packing a transaction's calls, and remembering what the next ones may be written against."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from agentlightning.records import AttemptKey, Span
from agentlightning.store.compact.delta import Base, shared_with, write
from agentlightning.store.compact.parts import Parts
from agentlightning.store.compact.reading import read_parts

Stored: TypeAlias = Callable[[AttemptKey], Iterable[tuple[str, bytes | None]]]
"""The calls stored of an attempt, in order of arrival: span id and packed call."""

Bases: TypeAlias = tuple[Base, ...]
"""The calls of an attempt that a new one may be written against, oldest first."""

BASES: Final = 8
"""How many calls of an attempt are remembered; one that a later call holds most of is not."""

MEMORY: Final = 64 << 20
"""How many bytes all remembered calls may take together."""


class CallPacker:
    """What a process remembers of the calls it stored, for all its connections.

    Args:
        memory: how many bytes it may take. Attempts that were quiet for longest are forgotten first;
            what is forgotten is read again when its attempt goes on.
    """

    def __init__(self, *, memory: int = MEMORY) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._attempts: OrderedDict[AttemptKey, Bases] = OrderedDict()
        self._size = 0
        self._generation = 0

    def begin(self, stored: Stored) -> Packing:
        """Pack within one transaction, which ``stored`` reads in."""
        return Packing(self, stored, self._generation)

    def forget(self) -> None:
        """Remember nothing, for a backend that cannot be sure that what it stored is still there.

        For example after its connection to a server broke: a replica that took over may lack the
        last transactions. Transactions that are under way add nothing either.
        """
        with self._lock:
            self._attempts.clear()
            self._size = 0
            self._generation += 1

    def recall(self, key: AttemptKey) -> Bases | None:
        """What is remembered of an attempt; None if nothing is known of it."""
        with self._lock:
            if key in self._attempts:
                self._attempts.move_to_end(key)
            return self._attempts.get(key)

    def remember(self, attempts: dict[AttemptKey, Bases], generation: int) -> None:
        """Take over what a committed transaction packed."""
        with self._lock:
            if generation != self._generation:
                return
            for key, bases in attempts.items():
                self._size += _size(bases) - _size(self._attempts.pop(key, ()))
                self._attempts[key] = bases
            while self._size > self._memory:
                _, oldest = self._attempts.popitem(last=False)
                self._size -= _size(oldest)

    def grow(self, bases: Bases, new: Base, base: Base | None, shared: int) -> Bases:
        """The bases of an attempt with one more call, which shares so much with its base."""
        if base is not None and 10 * shared >= 9 * base.parts.told:  # it holds what the base does
            bases = tuple(item for item in bases if item.span_id != base.span_id)
        bases = (*bases, new)[-BASES:]
        while _size(bases) > self._memory // 4:
            bases = bases[1:]
        return bases


class Packing:
    """The packing of one transaction.

    What it packs can be referred to by later calls of the same transaction at once, and by others only
    after :meth:`keep`; so a rollback forgets by doing nothing.

    A reference is good only while the span it leads to is stored with the content it was packed with.
    So a backend, within its transaction and before it packs, locks each attempt, until it commits,
    against others that insert spans there (SQLite has one writer anyhow); and it packs and inserts
    only spans that are new, which :meth:`pack_new` sees to: ``insert … on conflict do nothing`` would
    keep an older row of the same id.
    """

    def __init__(self, packer: CallPacker, stored: Stored, generation: int) -> None:
        self._packer = packer
        self._stored = stored
        self._generation = generation
        self._attempts: dict[AttemptKey, Bases] = {}

    def pack(self, spans: Iterable[Span]) -> list[bytes | None]:
        """What to store for each span's call; None for a span without. All are new to the store."""
        return [self._pack(span) for span in spans]

    def pack_new(
        self, spans: Iterable[Span], known: Callable[[AttemptKey, Collection[str]], Collection[str]]
    ) -> list[tuple[Span, bytes | None]]:
        """The spans to insert, and what to store for each one's call.

        Args:
            spans: what is to be added; ids may come again, or be stored already.
            known: which of these spans of an attempt are stored, with or without a call.

        Returns:
            Each id once, the first that came. Of spans without a call some may be stored already.
        """
        first: dict[tuple[AttemptKey, str], Span] = {}
        with_call: defaultdict[AttemptKey, list[str]] = defaultdict(list)
        for span in spans:
            key = AttemptKey(span.rollout_id, span.attempt)
            if first.setdefault((key, span.span_id), span) is span and span.call is not None:
                with_call[key].append(span.span_id)
        stored = {(key, name) for key, names in with_call.items() for name in known(key, names)}
        new = [span for place, span in first.items() if place not in stored]
        return list(zip(new, self.pack(new), strict=True))

    def keep(self) -> None:
        """The transaction is committed: later ones may refer to what it stored."""
        self._packer.remember(self._attempts, self._generation)

    def _pack(self, span: Span) -> bytes | None:
        if span.call is None:
            return None
        key = AttemptKey(span.rollout_id, span.attempt)
        bases = self._bases(key)
        if any(base.span_id == span.span_id for base in bases):
            raise ValueError(f"span {span.span_id} is stored already, or was given twice")
        parts = Parts.of(span.call)
        shared, base = -1, None
        for item in bases:
            amount = shared_with(parts, item.parts)
            if amount >= shared:  # of equals the latest
                shared, base = amount, item
        self._attempts[key] = self._packer.grow(bases, Base(span.span_id, parts), base, shared)
        return write(parts, base)

    def _bases(self, key: AttemptKey) -> Bases:
        bases = self._attempts.get(key)
        if bases is None:
            bases = self._packer.recall(key)
        if bases is None:
            bases = ()
            for row in read_parts(self._stored(key)):
                if row.parts is not None:
                    shared = 0 if row.base is None else shared_with(row.parts, row.base.parts)
                    new = Base(row.span_id, row.parts)
                    bases = self._packer.grow(bases, new, row.base, shared)
        self._attempts[key] = bases
        return bases


def _size(bases: Sequence[Base]) -> int:
    return sum(base.parts.size for base in bases)
