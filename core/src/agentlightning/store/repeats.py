"""Calls that come again: an idempotency key answers them with what the first one made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentlightning.errors import KeyReused
from agentlightning.records import AttemptKey
from agentlightning.store.keys import fingerprint
from agentlightning.store.tables import Answer, Tables
from agentlightning.store.types import Claim


def in_run(operation: Literal["enqueue", "publish"], run_id: str) -> str:
    """The name of an operation whose keys mean something within one run only."""
    return f"{operation} in {run_id}"


class Once:
    """One call under an idempotency key, or under none.

    Args:
        tables: where answers are kept, in the transaction of the call.
        operation: what is called; a key means something within one operation only.
        key: the caller's key, None to do it each time.
        body: everything the call was given.
    """

    def __init__(self, tables: Tables, operation: str, key: str | None, *body: object) -> None:
        self._tables = tables
        self.operation = operation
        self._key = key
        self._body = body

    def made(self) -> list[str] | None:
        """The names of what the first such call made; None if there was none.

        Raises:
            KeyReused: the first call had another body.
        """
        if self._key is None:
            return None
        answer = self._tables.answer(self.operation, self._key)
        if answer is None:
            return None
        if answer.fingerprint != fingerprint(*self._body):
            raise KeyReused(
                f"{self.operation} with the key {self._key!r} came before with another body; "
                "a key names one call: repeat the same body, or take a new key"
            )
        return answer.made

    def keep(self, made: Sequence[str]) -> bool:
        """Remember what was made. Nothing made is nothing to repeat, and stays a new call.

        Returns:
            Whether there was something to remember, and a key to remember it by.
        """
        if self._key is None or not made:
            return False
        answer = Answer(fingerprint(*self._body), list(made))
        self._tables.put_answer(self.operation, self._key, answer)
        return True


def names_of(claims: Sequence[Claim]) -> list[str]:
    """The claims' attempts as names that :func:`keys_of` reads."""
    return [f"{claim.key.rollout_id}/{claim.key.number}" for claim in claims]


def keys_of(names: Sequence[str]) -> list[AttemptKey]:
    """The attempts that :func:`names_of` wrote."""
    split = [name.rpartition("/") for name in names]
    return [AttemptKey(rollout_id, int(number)) for rollout_id, _, number in split]
