"""Where each LLM call of an attempt goes: to the run's model, with the run's prompt, or nowhere new."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agentlightning.agent import attempt_resources
from agentlightning.errors import AgentError
from agentlightning.records import (
    LLM,
    CallInfo,
    Decision,
    Passthrough,
    PromptTemplate,
    Resolver,
    Resources,
    Route,
)
from agentlightning.store import Claim


def resolver_for(
    claim: Claim,
    *,
    trained_agents: Collection[str] | None = None,
    prompts: Mapping[str, str] | None = None,
) -> Resolver:
    """What decides the routes of one attempt.

    - The calls of trained agents go to the run's :class:`LLM`; with no agent named anywhere, all do.
      Of several models it is the one the call asks for; a call that asks for none of them is left
      undecided.
    - The calls of an agent that ``prompts`` names get that prompt as their system message.
    - Every other call is passed through on purpose.

    Args:
        claim: the attempt, with the resources it is run with.
        trained_agents: names of the agents whose calls go to the model; None for all.
        prompts: resource name to the name of the agent whose system message it replaces.

    Raises:
        AgentError: a prompt is not among the resources, or a model is to be served by a run that has
            no endpoint.
    """
    resources = attempt_resources(claim)
    models = {name: item for name, item in resources.items() if isinstance(item, LLM)}
    systems = {agent: _system(name, resources) for name, agent in (prompts or {}).items()}
    named = None if trained_agents is None and not systems else {*(trained_agents or ()), *systems}

    def resolve(call: CallInfo) -> Decision:
        if named is not None and call.agent not in named:
            return Passthrough(reason=f"agent {call.agent!r} is not trained")
        system = systems.get(call.agent) if call.agent else None
        if not models:
            alone = Passthrough(reason="no model of the run")
            return alone if system is None else Route(system_prompt=system)
        llm = _wanted(call.model, models)
        return None if llm is None else _route(llm, system)

    return resolve


def _wanted(model: str | None, models: Mapping[str, LLM]) -> LLM | None:
    """The only model there is, else the one asked for by its own name or its resource's.

    A call that names no model, such as the built-in agent's, gets the resource ``llm``.
    """
    if len(models) == 1:
        return next(iter(models.values()))
    if model is None:
        return models.get("llm")
    return next((llm for name, llm in models.items() if model in (llm.model, name)), None)


def _route(llm: LLM, system_prompt: str | None) -> Route:
    route = Route(
        base_url=llm.base_url,
        model=llm.model,
        api_key_env=llm.api_key_env,
        extra_body=dict(llm.sampling),
        system_prompt=system_prompt,
    )
    return route.with_key(llm.api_key)


def _system(name: str, resources: Resources) -> str:
    found = resources.get(name)
    if not isinstance(found, PromptTemplate):
        raise AgentError(
            f"prompts names {name!r}, which is no prompt of this run; its prompts are "
            f"{[key for key, item in resources.items() if isinstance(item, PromptTemplate)]}"
        )
    return found.template if found.variables else found.format()  # nobody is there to fill them
