"""Resources an agent is run with, and what the seam does to one LLM call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Self, TypeAlias

import msgspec

from agentlightning.errors import ConfigError
from agentlightning.records.base import Int64, Part, Record
from agentlightning.records.codec import JSON, as_json
from agentlightning.records.spans import Api
from agentlightning.records.templates import TemplateEngine, render, variables


class _Keyed(Part, frozen=True, kw_only=True, dict=True):
    """Carries an API key beside its fields, so that no encoder can ever write it down."""

    @property
    def api_key(self) -> str | None:
        """The key to send: the one given for this attempt, else the named variable's value."""
        given: str | None = self.__dict__.get("_api_key")
        variable: str | None = getattr(self, "api_key_env", None)
        return given if given is not None else (os.environ.get(variable) if variable else None)

    def with_key(self, key: str | None) -> Self:
        """A copy that sends ``key``."""
        copy = msgspec.structs.replace(self)
        copy.__dict__["_api_key"] = key
        return copy


class LLM(_Keyed, frozen=True, kw_only=True, dict=True, tag="llm"):
    """A model to ask. ``base_url`` None means: served by us, at the claim's endpoint.

    ``sampling`` holds request fields such as ``temperature``; ``version`` counts weight updates.
    """

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    sampling: dict[str, JSON] = {}
    version: Int64 = 0


class PromptTemplate(Part, frozen=True, kw_only=True, tag="prompt_template"):
    """A prompt with placeholders.

    In the ``f-string`` engine ``{name}`` is a placeholder and any other brace is text, so JSON
    examples need no doubling; ``{name.attribute}`` and ``{name[0]}`` are refused.
    """

    template: str
    engine: TemplateEngine = "f-string"

    @property
    def variables(self) -> frozenset[str]:
        """The names of the placeholders."""
        return variables(self.template, self.engine)

    def format(self, **values: object) -> str:
        """The text with every placeholder filled; a missing or unknown name is a ``BadValue``."""
        return render(self.template, self.engine, values)


class Data(Part, frozen=True, kw_only=True, tag="data"):
    """Any JSON value as a resource."""

    value: JSON


Resource: TypeAlias = LLM | PromptTemplate | Data
Resources: TypeAlias = Mapping[str, Resource]


def as_resource(value: object, name: str) -> Resource:
    """Wrap what a user gave: a resource as it is, anything else as ``Data``."""
    if isinstance(value, LLM | PromptTemplate | Data):
        return value
    return Data(value=as_json(value, f"resource {name!r}"))


class ResourcesVersion(Record, frozen=True, kw_only=True):
    """An immutable, versioned, named set of resources. A candidate is never "latest"."""

    run_id: str
    version: Int64
    created_at: float
    resources: dict[str, Resource]
    parent: Int64 | None = None
    note: str = ""
    candidate: bool = False

    def llm(self, name: str | None = None) -> LLM:
        """The LLM of that name, or the only one.

        Raises:
            ConfigError: none or several; the message lists what there is.
        """
        found = {key: item for key, item in self.resources.items() if isinstance(item, LLM)}
        if name is not None and name in found:
            return found[name]
        if name is None and len(found) == 1:
            return next(iter(found.values()))
        raise ConfigError(
            f"resources version {self.version} has the models {sorted(found) or 'none'}; "
            f"asked for {name!r}: name one of them"
        )


class CallInfo(Part, frozen=True, kw_only=True):
    """What a resolver is told about an LLM call that is about to be sent."""

    api: Api
    url: str
    model: str | None
    agent: str | None = None
    messages: tuple[JSON, ...] = ()
    client: str = ""


class Route(_Keyed, frozen=True, kw_only=True, dict=True):
    """How the seam changes one LLM call; None leaves that part as it is.

    ``extra_body`` is merged into the request and beats the user's own keys. ``system_prompt``
    replaces the system message (or ``instructions``).
    """

    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    headers: dict[str, str] = {}
    extra_body: dict[str, JSON] = {}
    system_prompt: str | None = None


class Passthrough(Part, frozen=True, kw_only=True):
    """The call is left alone on purpose, and recorded: a judge, an untrained agent."""

    reason: str


Decision: TypeAlias = Route | Passthrough | None
Resolver: TypeAlias = Callable[[CallInfo], Decision]
"""Decides a call's route; None means nobody decided, which strict mode refuses."""
