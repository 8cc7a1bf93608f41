"""Examples: token ids with the mask of what is trained, and the account of where they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Example:
    """One sequence to train on.

    Attributes:
        ids: token ids.
        mask: as long as ``ids``; 1 on tokens that are trained.
        exact: the ids are the recorded ones; else they were made by the chat template.
    """

    ids: Sequence[int]
    mask: bytes
    exact: bool

    @property
    def trained_tokens(self) -> int:
        """How many tokens are trained. The first of a sequence never is: nothing predicts it."""
        return sum(self.mask[1:])


@dataclass
class Examples:
    """What there is to train on, and what was left out; nothing is left out uncounted.

    Attributes:
        dropped: why something has no row, counted.
        retokenised: why recorded token ids were not used and the chat template was, counted.
    """

    items: list[Example] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    retokenised: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.items)

    def add(self, other: Examples) -> None:
        """Take the other's examples and account along."""
        self.items += other.items
        self.dropped += other.dropped
        self.retokenised += other.retokenised

    def within(self, limit: int | None) -> Examples:
        """Those of at most ``limit`` tokens; the others are counted, never cut."""
        if limit is None:
            return self
        short = [item for item in self.items if len(item.ids) <= limit]
        dropped = self.dropped.copy()
        if len(short) < len(self.items):
            dropped[f"longer than {limit} tokens"] = len(self.items) - len(short)
        return Examples(short, dropped, self.retokenised)

    def numbers(self) -> Mapping[str, float]:
        """The account as metrics."""
        exact = sum(item.exact for item in self.items)
        return {
            "data/rows": len(self.items),
            "data/rows_exact": exact,
            "data/rows_from_template": len(self.items) - exact,
            "data/tokens": sum(len(item.ids) for item in self.items),
            "data/trained_tokens": sum(item.trained_tokens for item in self.items),
            "data/dropped": sum(self.dropped.values()),
        }

    def __str__(self) -> str:
        numbers = self.numbers()
        text = (
            f"{len(self.items)} rows ({numbers['data/rows_exact']} with their recorded token ids, "
            f"{numbers['data/rows_from_template']} by the chat template), "
            f"{numbers['data/trained_tokens']} of {numbers['data/tokens']} tokens trained"
        )
        for title, counts in (("tokenised anew", self.retokenised), ("left out", self.dropped)):
            if counts:
                text += f"; {title}: {reasons(counts)}"
        return text


def reasons(counts: Counter[str]) -> str:
    """Counts in words, the most frequent first."""
    return ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
