"""The resources of one attempt: the claim's, with the models served by us led to its endpoint."""

from __future__ import annotations

import msgspec

from agentlightning.errors import AgentError
from agentlightning.records import LLM, Resource
from agentlightning.store import Claim


def attempt_resources(claim: Claim) -> dict[str, Resource]:
    """The claim's resources as this attempt uses them.

    An :class:`LLM` without a base URL is served by the run: it gets this attempt's endpoint and the
    claim's token as its key. Every other resource is passed as it is.

    Raises:
        AgentError: a model is to be served by the run, which has no endpoint.
    """
    return {name: _led_here(name, item, claim) for name, item in claim.resources.resources.items()}


def _led_here(name: str, resource: Resource, claim: Claim) -> Resource:
    if not isinstance(resource, LLM) or resource.base_url is not None:
        return resource
    if claim.endpoint_url is None:
        raise AgentError(
            f"the resource {name!r} (model {resource.model!r}) has no base_url, so the run should "
            f"serve it, but run {claim.run.run_id} has no endpoint: keep the trainer running, or "
            f"give the LLM a base_url"
        )
    return msgspec.structs.replace(resource, base_url=claim.endpoint_url).with_key(claim.token)
