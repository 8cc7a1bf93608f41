"""What package metadata says: which framework versions a plug-in needs, what to install for a name.

A plug-in states the supported range of its framework once, in its extra ``framework``. Reading that
before the plug-in is imported turns a traceback into ``needs langchain-core>=0.3.86, found 0.2.9``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CORE = "agentlightning"
FRAMEWORK_EXTRA = "framework"


@dataclass(frozen=True)
class Need:
    """One requirement of a plug-in and what is installed.

    Attributes:
        requirement: name and range, such as ``trl>=1.16,<1.17``.
        found: the version installed; None if it is not.
        met: whether that version is within the range.
    """

    requirement: str
    found: str | None
    met: bool

    def __str__(self) -> str:
        """The need in words, ending in what was found."""
        found = f"found {self.found}" if self.found else "which is not installed"
        return f"needs {self.requirement}, {found}"


def framework_needs(distribution: metadata.Distribution) -> tuple[Need, ...]:
    """What the ``framework`` extra of a distribution asks for, compared with what is installed."""
    requirements = _of_extra(distribution.requires, FRAMEWORK_EXTRA)
    return tuple(_compare(requirement) for requirement in requirements)


def core_need(distribution: metadata.Distribution) -> Need | None:
    """What a distribution asks of the core, compared with the core that runs; None if nothing."""
    for requirement in map(Requirement, distribution.requires or ()):
        if canonicalize_name(requirement.name) == CORE and requirement.marker is None:
            return _compare(requirement)
    return None


def unmet(needs: Iterable[Need]) -> str | None:
    """Why these needs are not met, in one line; None if they are."""
    return "; ".join(str(need) for need in needs if not need.met) or None


def install_command(name: str, distribution: str | None = None) -> str | None:
    """The command that installs what offers ``name``, or None where nothing is known to.

    Args:
        name: the name of a plug-in or of something a plug-in offers.
        distribution: a distribution known to offer it, for names that are no extra of the core.
    """
    extra = canonicalize_name(name)
    if extra in core_extras():
        return f'pip install "{CORE}[{extra}]"'
    return f'pip install "{distribution}[{FRAMEWORK_EXTRA}]"' if distribution else None


@functools.cache
def core_extras() -> Mapping[str, frozenset[str]]:
    """The core's extras, each with the distributions it brings (extras of the core followed)."""
    core = metadata.distribution(CORE)
    extras = core.metadata.get_all("Provides-Extra") or []
    return {extra: frozenset(_brings(core.requires, extra)) for extra in extras}


def _brings(requires: list[str] | None, extra: str) -> Iterator[str]:
    for requirement in _of_extra(requires, extra):
        if canonicalize_name(requirement.name) != CORE:
            yield canonicalize_name(requirement.name)
            continue
        for inner in requirement.extras:
            yield from _brings(requires, inner)


def _of_extra(requires: list[str] | None, extra: str) -> list[Requirement]:
    """The requirements that an extra adds to those a distribution always has."""
    parsed = map(Requirement, requires or ())
    return [
        requirement
        for requirement in parsed
        if (marker := requirement.marker)
        and marker.evaluate({"extra": extra})
        and not marker.evaluate({"extra": ""})
    ]


def _compare(requirement: Requirement) -> Need:
    # Lower bounds first, as people write them; packaging sorts by the text of the operator.
    bounds = sorted(requirement.specifier, key=lambda bound: (bound.operator[0] == "<", str(bound)))
    text = requirement.name + ",".join(map(str, bounds))
    try:
        found = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Need(text, None, met=False)
    return Need(text, found, met=requirement.specifier.contains(found, prereleases=True))
