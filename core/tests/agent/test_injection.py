from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import agentlightning.records as agl
import pytest
from agentlightning.agent import bind_agent
from agentlightning.agent import rollout as declare
from agentlightning.errors import AgentError
from agentlightning.records import LLM, Data, PromptTemplate, Rollout, RolloutRequest

if TYPE_CHECKING:
    from decimal import Decimal

PROMPT = PromptTemplate(template="Be {mood}.")


@pytest.fixture
def claim_with(memory_store):
    """A real claim of a run with the given resources."""

    def make(endpoint="http://127.0.0.1:9", **resources):
        run = memory_store.create_run("test", {})
        memory_store.set_endpoint(run.run_id, endpoint)
        memory_store.publish(run.run_id, resources)
        memory_store.enqueue(run.run_id, [RolloutRequest(input="the task")])
        return memory_store.claim(run.run_id, "w")[0]

    return make


def run(agent, claim):
    return bind_agent(agent)(claim.rollout.input, claim)


def test_the_first_parameter_is_the_task_whatever_its_name(claim_with):
    assert run(lambda question: question, claim_with()) == "the task"


def test_llm_leads_to_the_attempts_endpoint_with_its_token(claim_with):
    claim = claim_with(llm=LLM(model="tiny"))

    given = run(lambda task, llm: llm, claim)

    assert given.base_url == claim.endpoint_url
    assert given.api_key == claim.token
    assert given.model == "tiny"


def test_an_llm_with_its_own_address_keeps_it(claim_with, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    llm = LLM(model="big", base_url="http://elsewhere/v1", api_key_env="SOME_KEY")

    given = run(lambda task, llm: llm, claim_with(llm=llm))

    assert (given.base_url, given.api_key) == ("http://elsewhere/v1", "secret")


def test_a_model_that_nobody_serves_is_named(claim_with):
    claim = claim_with(endpoint=None, policy=LLM(model="tiny"))

    with pytest.raises(AgentError, match=r"'policy' \(model 'tiny'\).*no endpoint"):
        run(lambda task, policy: policy, claim)


def test_parameters_are_found_by_name_and_by_annotation(claim_with):
    def agent(task, style, model: LLM, text: agl.PromptTemplate | None, it: Rollout, resources):
        return style, model.model, text, it, sorted(resources)

    claim = claim_with(writer=LLM(model="tiny"), system=PROMPT, style=Data(value={"tone": "dry"}))

    assert run(agent, claim) == (
        {"tone": "dry"},
        "tiny",
        PROMPT,
        claim.rollout,
        ["style", "system", "writer"],
    )


def test_annotations_are_read_although_a_name_among_them_is_for_type_checkers_only(claim_with):
    def agent(task: Decimal, model: agl.LLM) -> None:
        return model.model

    assert run(agent, claim_with(policy=LLM(model="tiny"))) == "tiny"


def test_data_is_unwrapped_unless_asked_for(claim_with):
    def agent(task, plain, wrapped: Data):
        return plain, wrapped

    claim = claim_with(plain=Data(value=1), wrapped=Data(value=2))

    assert run(agent, claim) == (1, Data(value=2))


def test_a_default_is_kept_when_nothing_fits(claim_with):
    def agent(task, /, temperature=0.5, *more, llm=None, **options):
        return task, temperature, more, llm, options

    assert run(agent, claim_with()) == ("the task", 0.5, (), None, {})


def test_every_way_of_taking_a_task_works(claim_with):
    class Callable:
        def __call__(self, task, llm: LLM):
            return task, llm.model

    def keyword_only(*, task):
        return task

    claim = claim_with(llm=LLM(model="tiny"))

    assert run(Callable(), claim) == ("the task", "tiny")
    assert run(keyword_only, claim) == "the task"
    assert run(lambda *args: args, claim) == ("the task",)
    assert run(functools.partial(lambda x, task: (x, task), 1), claim) == (1, "the task")
    assert run(len, claim) == 8


def test_a_parameter_nothing_fits_is_named_with_what_there_is(claim_with):
    claim = claim_with(llm=LLM(model="tiny"), system=PROMPT)

    with pytest.raises(AgentError) as caught:
        run(lambda task, wether: wether, claim)

    message = str(caught.value)
    assert "'wether'" in message
    assert "'llm' (an LLM), 'system' (a PromptTemplate)" in message


def test_of_two_models_the_parameter_must_name_one(claim_with):
    claim = claim_with(writer=LLM(model="a"), critic=LLM(model="b"))

    assert run(lambda task, critic: critic.model, claim) == "b"
    with pytest.raises(AgentError, match="'llm'"):
        run(lambda task, llm: llm, claim)


def test_a_resource_of_another_kind_than_annotated_is_refused(claim_with):
    def agent(task, system: LLM):
        return system

    with pytest.raises(AgentError, match=r"'system' as LLM.*a PromptTemplate"):
        run(agent, claim_with(system=PROMPT))


def test_a_wrong_parameter_is_found_before_anything_runs():
    bound = bind_agent(lambda task, llm, prompt: None)

    bound.check({"llm": LLM(model="tiny"), "prompt": PROMPT})
    with pytest.raises(AgentError, match="'prompt'"):
        bound.check({"llm": LLM(model="tiny")})


def test_a_function_without_parameters_is_refused_when_it_is_declared():
    with pytest.raises(AgentError, match="takes no parameter"):

        @declare
        def agent():
            """Takes nothing."""


def test_declaring_leaves_the_function_as_it_is():
    def agent(task):
        return task

    assert declare(agent) is agent
    assert agent(1) == 1
