"""What plug-ins offer, by name: one registry a kind, targets imported when they are asked for."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from agentlightning.errors import PluginError, UnknownName
from agentlightning.plugins.requirements import core_extras, install_command

T = TypeVar("T")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TARGET = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class Source:
    """The plug-in that offers a name.

    Attributes:
        plugin: the name of its entry point.
        inactive: why nothing of it can be used, such as a framework that is not installed.
        builtin: part of the core itself.
    """

    plugin: str
    distribution: str
    version: str
    inactive: str | None = None
    builtin: bool = False

    def __str__(self) -> str:
        """Distribution and version."""
        return f"{self.distribution} {self.version}".rstrip()


PROGRAM = Source(plugin="program", distribution="program", version="")
"""What the running program itself adds, by a decorator or by hand; adding again replaces."""


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One name on offer.

    Attributes:
        target: what makes a T, as ``"module:attr"`` or the object.
        facts: what else is known of it, by kind: trigger, schemes, config.
        alias_of: the name this one stands for, and ``sets`` the configuration keys it sets.
    """

    name: str
    target: str | Callable[..., T]
    summary: str
    source: Source
    facts: Mapping[str, Any] = field(default_factory=dict)
    alias_of: str | None = None
    sets: Mapping[str, Any] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        """The distribution that offers it."""
        return self.source.distribution

    @property
    def version(self) -> str:
        """The version of that distribution."""
        return self.source.version

    @property
    def qualified(self) -> str:
        """The name that stays unique when two distributions offer one name: ``dist:name``."""
        return f"{self.distribution}:{self.name}"


def canonical(name: str) -> str:
    """A name as it is compared: lower case, ``-`` and ``_`` equal."""
    return name.strip().lower().replace("-", "_")


def import_target(target: str, owner: str) -> Any:
    """The object a ``"module:attr"`` target names; a ``PluginError`` naming ``owner`` if it fails."""
    module, _, attribute = target.partition(":")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    # A stranger's module may raise anything, and one that calls sys.exit() must not end the host.
    except (Exception, SystemExit) as error:
        raise PluginError(
            f'"{target}" of {owner} could not be imported: {type(error).__name__}: {error}'
        ) from error


class Registry(Generic[T]):
    """Everything of one kind that is on offer; each kind has its own ``add``."""

    kind: ClassVar[str]
    """The kind in words, as messages and ``agl plugins`` name it."""

    def __init__(self, explain: Callable[[str], str | None] = lambda _: None) -> None:
        """Start empty.

        Args:
            explain: says why a name that nothing offers might be missing (its plug-in failed …).
        """
        self._explain = explain
        self._entries: dict[tuple[str, str], Entry[T]] = {}
        self._imported: dict[tuple[str, str], Callable[..., T]] = {}
        self._source = PROGRAM

    def get(self, name: str) -> Callable[..., T]:
        """What makes a T of this name; imported at the first call.

        Args:
            name: a name or alias, or ``distribution:name``.

        Raises:
            UnknownName: nothing offers the name; the message lists what does and how to install it.
            PluginError: its plug-in failed, is inactive, or two distributions offer the name.
        """
        return self.resolve(self.entry(name))

    def entry(self, name: str) -> Entry[T]:
        """What is known of a name, without importing its target; inactive plug-ins included."""
        distribution, _, plain = name.rpartition(":")
        offers = [
            entry
            for (owner, known), entry in self._entries.items()
            if known == canonical(plain) and canonical(distribution) in ("", canonical(owner))
        ]
        if not offers:
            known = sorted({entry.name for entry in self.entries()})
            raise self._unknown(name, f'no {self.kind} is called "{name}"', known)
        return self._choose(name, offers)

    def usable(self, name: str) -> Entry[T]:
        """What is known of a name whose plug-in can be used, without importing its target.

        Raises:
            UnknownName: as :meth:`get`.
            PluginError: as :meth:`get`.
        """
        entry = self.entry(name)
        self._require_active(entry)
        return entry

    def resolve(self, entry: Entry[T]) -> Callable[..., T]:
        """The object behind an entry; imported once."""
        self._require_active(entry)
        if not isinstance(entry.target, str):
            return entry.target
        key = (entry.distribution, entry.name)
        if key not in self._imported:
            self._imported[key] = import_target(entry.target, f'"{entry.name}" of {entry.source}')
        return self._imported[key]

    def entries(self, *, inactive: bool = False) -> Sequence[Entry[T]]:
        """All that is on offer, in the order it was added.

        Args:
            inactive: also what cannot be used now, such as an adapter of a missing framework.
        """
        return [entry for entry in self._entries.values() if inactive or not entry.source.inactive]

    def drop(self, source: Source) -> None:
        """Forget everything that ``source`` offers."""
        for key in [key for key, entry in self._entries.items() if entry.source == source]:
            del self._entries[key]
            self._imported.pop(key, None)

    @contextmanager
    def adding_as(self, source: Source) -> Iterator[None]:
        """What is added inside is offered by ``source``; outside, by the program itself."""
        self._source = source
        try:
            yield
        finally:
            self._source = PROGRAM

    def _require_active(self, entry: Entry[T]) -> None:
        if entry.source.inactive:
            install = install_command(entry.name, entry.distribution)
            raise PluginError(
                f'the {self.kind} "{entry.name}" of {entry.source} cannot be used: '
                f"{entry.source.inactive}; to install it: {install}"
            )

    def _put(
        self,
        name: str,
        target: str | Callable[..., T],
        summary: str,
        *,
        facts: Mapping[str, Any] | None = None,
        alias_of: str | None = None,
        sets: Mapping[str, Any] | None = None,
    ) -> None:
        entry = Entry(
            name=checked_name(self.kind, name),
            target=_checked_target(self.kind, name, target),
            summary=summary,
            source=self._source,
            facts=MappingProxyType(dict(facts or {})),
            alias_of=alias_of,
            sets=MappingProxyType(dict(sets or {})),
        )
        key = (entry.distribution, entry.name)
        if key in self._entries and self._source is not PROGRAM:
            raise PluginError(f'{self._source} adds the {self.kind} "{entry.name}" twice')
        if self._source is PROGRAM and self._offered_elsewhere(entry):
            return
        self._entries[key] = entry
        self._imported.pop(key, None)

    def _offered_elsewhere(self, added: Entry[T]) -> bool:
        """Whether a plug-in offers the very object the program adds: it then is there once."""
        place = _place(added.target)
        return any(
            entry.name == added.name and entry.source != PROGRAM and _place(entry.target) == place
            for entry in self._entries.values()
        )

    def _choose(self, name: str, offers: Sequence[Entry[T]]) -> Entry[T]:
        """The one entry meant among several of one name."""
        usable = [entry for entry in offers if not entry.source.inactive] or list(offers)
        builtin = [entry for entry in usable if entry.source.builtin]
        chosen = builtin or usable
        if len(chosen) == 1:
            return chosen[0]
        owners = " and ".join(str(entry.source) for entry in chosen)
        full = " or ".join(f'"{entry.qualified}"' for entry in chosen)
        raise PluginError(f'{owners} both offer the {self.kind} "{name}"; ask for {full}')

    def _unknown(self, name: str, message: str, known: Sequence[str]) -> PluginError:
        """The error for a name that nothing offers: why, what there is, and what to install."""
        plain = canonical(name.rpartition(":")[2])
        if reason := self._explain(plain):
            return PluginError(f"{message}: {reason}")
        install = install_command(plain)
        hint = f"; to install it: {install}" if install else _not_installed(known, plain)
        return UnknownName(f"{message}; {known_names(known, plain)}{hint}")


def known_names(known: Sequence[str], wanted: str) -> str:
    """The names there are, and the nearest to what was asked for."""
    if not known:
        return "none is installed"
    nearest = difflib.get_close_matches(wanted, known, n=1)
    guess = f'; did you mean "{nearest[0]}"?' if nearest else ""
    return f"known: {', '.join(known)}{guess}"


def _not_installed(known: Sequence[str], wanted: str) -> str:
    """How to install what was meant, where nothing that is installed comes near it."""
    if difflib.get_close_matches(wanted, known, n=1):
        return ""
    nearest = difflib.get_close_matches(wanted, [canonical(extra) for extra in core_extras()], n=1)
    if not nearest:
        return ""
    return f'; did you mean "{nearest[0]}"? To install it: {install_command(nearest[0])}'


def checked_name(kind: str, name: str) -> str:
    """The canonical form of a name to be added; a ``PluginError`` if it could not be typed."""
    if not _NAME.fullmatch(canonical(name)):
        raise PluginError(
            f'"{name}" is no valid {kind} name: expected a letter, then letters, digits, "-" or "_"'
        )
    return canonical(name)


def _checked_target(kind: str, name: str, target: Any) -> Any:
    if callable(target) or (isinstance(target, str) and _TARGET.fullmatch(target)):
        return target
    raise PluginError(
        f'the target of the {kind} "{name}" is {target!r}; expected "package.module:attribute" '
        "or a callable"
    )


def _place(target: object) -> str:
    """Where an object is defined, in the form of a target."""
    if isinstance(target, str):
        return target
    return f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', id(target))}"
