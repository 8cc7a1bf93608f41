import pytest
from agentlightning.errors import AgentError
from agentlightning.records import LLM, CallInfo, Data, Passthrough, PromptTemplate, Route
from agentlightning.runner import resolver_for


@pytest.fixture
def claim_with(bench):
    def make(endpoint=None, **resources):
        bench.store.set_endpoint(bench.run.run_id, endpoint)
        bench.publish(**resources)
        bench.enqueue("task")
        return bench.store.claim(bench.run.run_id, "w")[0]

    return make


def call(agent=None, model="gpt-4"):
    return CallInfo(api="chat", url="https://api.openai.com/v1", model=model, agent=agent)


PROMPT = PromptTemplate(template="Be brief. Answer as {json}.")


def test_every_call_goes_to_the_only_model_with_the_claims_token(claim_with):
    claim = claim_with("http://127.0.0.1:9", llm=LLM(model="tiny", sampling={"top_p": 0.5}))
    resolve = resolver_for(claim)

    for agent in (None, "writer"):
        route = resolve(call(agent))
        assert isinstance(route, Route)
        assert (route.base_url, route.model) == (claim.endpoint_url, "tiny")
        assert (route.api_key, route.extra_body) == (claim.token, {"top_p": 0.5})


def test_a_model_elsewhere_is_asked_with_its_own_key(claim_with, monkeypatch):
    monkeypatch.setenv("BIG_KEY", "secret")
    llm = LLM(model="big", base_url="http://big/v1", api_key_env="BIG_KEY")

    route = resolver_for(claim_with(llm=llm))(call())

    assert (route.base_url, route.api_key) == ("http://big/v1", "secret")


def test_calls_of_untrained_agents_are_passed_through(claim_with):
    resolve = resolver_for(claim_with("http://x", llm=LLM(model="tiny")), trained_agents=("writer",))

    assert isinstance(resolve(call("writer")), Route)
    assert resolve(call("judge")) == Passthrough(reason="agent 'judge' is not trained")
    assert isinstance(resolve(call(None)), Passthrough)


def test_without_a_model_calls_are_passed_through(claim_with):
    resolve = resolver_for(claim_with(style=Data(value="dry")))

    assert resolve(call()) == Passthrough(reason="no model of the run")


def test_a_prompt_replaces_the_system_message_of_its_agent_only(claim_with):
    resolve = resolver_for(claim_with(instructions=PROMPT), prompts={"instructions": "writer"})

    route = resolve(call("writer"))
    assert route.system_prompt == PROMPT.template
    assert (route.base_url, route.model, route.api_key) == (None, None, None)
    assert isinstance(resolve(call("judge")), Passthrough)


def test_prompts_and_trained_agents_go_together(claim_with):
    claim = claim_with("http://x", llm=LLM(model="tiny"), instructions=PROMPT)
    resolve = resolver_for(claim, trained_agents=("coder",), prompts={"instructions": "writer"})

    assert resolve(call("coder")).system_prompt is None
    assert resolve(call("writer")).system_prompt == PROMPT.template
    assert resolve(call("writer")).model == "tiny"
    assert isinstance(resolve(call("judge")), Passthrough)


def test_of_several_models_the_call_names_its_own(claim_with):
    llms = {"llm": LLM(model="a", base_url="http://a"), "critic": LLM(model="b", base_url="http://b")}
    resolve = resolver_for(claim_with(**llms))

    assert resolve(call(model="b")).base_url == "http://b"
    assert resolve(call(model="critic")).model == "b"
    assert resolve(call(model=None)).model == "a"
    assert resolve(call(model="gpt-4")) is None


def test_a_prompt_the_run_does_not_have_is_named(claim_with):
    with pytest.raises(AgentError, match=r"'instruction', which is no prompt.*\['instructions'\]"):
        resolver_for(claim_with(instructions=PROMPT), prompts={"instruction": "writer"})


def test_a_model_nobody_serves_is_named(claim_with):
    with pytest.raises(AgentError, match="no endpoint"):
        resolver_for(claim_with(llm=LLM(model="tiny")))
