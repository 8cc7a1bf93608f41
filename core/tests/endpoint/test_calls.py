"""Each call of an attempt: where it goes, what the agent gets back, what is recorded."""

from __future__ import annotations

import logging

import httpx
import openai
import pytest
from agentlightning.engine import EngineInfo
from agentlightning.errors import ConfigError, EngineError
from agentlightning.recording.ids import root_span_id_of, trace_id_of
from agentlightning.records import LLM
from endpoint_bench import Bench, EchoEngine, model_server, reply_to
from starlette.responses import JSONResponse, PlainTextResponse


def test_a_call_is_recorded_with_its_exact_tokens_before_the_agent_has_the_reply(bench: Bench):
    bench.serve(EchoEngine(), llm=LLM(model="policy", version=7))
    claim = bench.claim()
    reply = bench.chat(claim, "hey")
    (span,) = bench.sink.take(claim.key)
    assert reply.json()["choices"][0]["message"]["content"] == "hey"
    call = span.call
    assert list(call.prompt_ids) == [ord(letter) for letter in "hey"]
    assert list(call.choices[0].response_ids) == [ord(letter) for letter in "hey"]
    assert list(call.choices[0].logprobs) == [-0.5] * 3
    assert (call.seq, call.model_version, call.complete, call.base_url) == (1, 7, True, "in-process")
    assert span.trace_id == trace_id_of(claim.key)
    assert span.parent_id == root_span_id_of(claim.key)
    assert span.start_ns <= span.end_ns


def test_the_engine_is_asked_for_tokens_and_the_agent_does_not_get_what_it_did_not_ask_for(
    bench: Bench,
):
    engine = bench.serve(EchoEngine())
    claim = bench.claim()
    plain = bench.chat(claim).json()
    assert engine.asked[0]["logprobs"] is True
    assert engine.asked[0]["return_token_ids"] is True
    assert "prompt_token_ids" not in plain
    assert not {"token_ids", "logprobs"} & plain["choices"][0].keys()
    full = bench.chat(claim, logprobs=True, return_token_ids=True).json()
    assert full["prompt_token_ids"]
    assert full["choices"][0]["token_ids"]
    assert full["choices"][0]["logprobs"]["content"]


def test_sampling_is_forced_on_training_and_left_alone_on_validation(bench: Bench, caplog):
    engine = bench.serve(EchoEngine(), sampling={"temperature": 1.0, "top_p": 1.0})
    train, val = bench.claim("train"), bench.claim("val")
    with caplog.at_level(logging.WARNING, "agentlightning.endpoint"):
        bench.chat(train, temperature=0.2, top_p=1.0)
        bench.chat(train, temperature=0.2)
    bench.chat(train)
    bench.chat(val, temperature=0.2)
    assert [body["temperature"] for body in engine.asked] == [1.0, 1.0, 1.0, 0.2]
    assert [call.temperature for call in bench.calls(train)] == [1.0, 1.0, 1.0]
    assert [call.temperature for call in bench.calls(val)] == [0.2]
    overruled = [
        span.attributes.get("agentlightning.overruled.temperature") for span in bench.spans(train)
    ]
    assert overruled == [0.2, 0.2, None]
    assert bench.endpoint.report()["forced_temperature"] == 2
    assert "forced_top_p" not in bench.endpoint.report()
    assert len([r for r in caplog.records if "temperature=0.2" in r.getMessage()]) == 1


def test_the_resources_sampling_fills_in_what_the_agent_left_open(bench: Bench):
    llm = LLM(model="policy", sampling={"temperature": 0.0, "max_tokens": 5})
    engine = bench.serve(EchoEngine(), llm=llm)
    bench.chat(bench.claim(), temperature=0.7, max_tokens=None)
    assert (engine.asked[0]["temperature"], engine.asked[0]["max_tokens"]) == (0.7, 5)


def test_the_only_model_answers_to_any_name_and_of_several_the_one_named(bench: Bench):
    first = bench.serve(EchoEngine())
    assert bench.chat(bench.claim(), model="gpt-4o").status_code == 200
    second = bench.serve(EchoEngine(), model="judge")
    claim = bench.claim()
    assert bench.chat(claim, model="judge").json()["model"] == "judge"
    refused = bench.chat(claim, model="gpt-4o")
    assert refused.status_code == 404
    message = refused.json()["error"]["message"]
    assert "policy" in message
    assert "judge" in message
    assert "gpt-4o" in message
    assert (len(first.asked), len(second.asked)) == (1, 1)


def test_a_run_that_serves_nothing_says_so(bench: Bench):
    refused = bench.chat(bench.claim())
    assert refused.status_code == 404
    assert "serves no model" in refused.json()["error"]["message"]


def test_after_an_update_every_name_leads_to_the_new_weights(bench: Bench):
    engine = bench.serve(EchoEngine())
    claim = bench.claim()
    bench.endpoint.stamp("policy", 1, new_model="policy-1")
    bench.endpoint.stamp("policy-1", 2, new_model="policy-2")
    bench.serve(EchoEngine(), model="judge")
    for name in ("policy", "policy-1", "policy-2"):
        assert bench.chat(claim, model=name).json()["model"] == "policy-2"
    assert [body["model"] for body in engine.asked] == ["policy-2"] * 3
    assert [call.model_version for call in bench.calls(claim)] == [2, 2, 2]
    with pytest.raises(ConfigError, match="no model 'other' is served; served: judge, policy"):
        bench.endpoint.stamp("other", 3)


def test_calls_are_numbered_for_each_attempt_by_itself(bench: Bench):
    bench.serve(EchoEngine())
    first, second = bench.claim(), bench.claim()
    for claim in (first, second, first, first):
        bench.chat(claim)
    assert [call.seq for call in bench.calls(first)] == [1, 2, 3]
    assert [call.seq for call in bench.calls(second)] == [1]


def test_the_senders_own_numbers_count_on(bench: Bench):
    bench.serve(EchoEngine())
    claim = bench.claim()
    bench.chat(claim, headers={"x-agentlightning-seq": "5"})
    bench.chat(claim)
    assert [call.seq for call in bench.calls(claim)] == [5, 6]


def test_the_seams_span_parent_and_agent_are_kept(bench: Bench):
    bench.serve(EchoEngine())
    claim = bench.claim()
    headers = {
        "x-agentlightning-span-id": "00000000000000aa",
        "x-agentlightning-parent-id": "00000000000000bb",
        "x-agentlightning-agent": "planner",
    }
    bench.chat(claim, headers=headers)
    (span,) = bench.spans(claim)
    assert (span.span_id, span.parent_id, span.call.agent) == (
        "00000000000000aa",
        "00000000000000bb",
        "planner",
    )


def test_models_are_listed_and_stray_queries_and_paths_are_harmless(bench: Bench):
    bench.serve(EchoEngine())
    with bench.client(bench.claim()) as client:
        assert [model["id"] for model in client.get("/models?api-version=1").json()["data"]] == [
            "policy"
        ]
        reply = client.post(
            "/chat/completions?api-version=2",
            json={"model": "policy", "messages": [{"role": "user", "content": "x"}]},
        )
        assert reply.status_code == 200
        unknown = client.post("/embeddings", json={})
    assert unknown.status_code == 404
    assert "embeddings" in unknown.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'"text"'])
def test_a_body_that_is_no_json_object_is_refused(bench: Bench, content: bytes):
    bench.serve(EchoEngine())
    with bench.client(bench.claim()) as client:
        refused = client.post("/chat/completions", content=content)
    assert refused.status_code == 400
    assert "request is" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status"), [(EngineError("prompt is too long"), 400), (ZeroDivisionError("boom"), 500)]
)
def test_an_engines_failure_reaches_the_agent_and_the_record(
    bench: Bench, error: Exception, status: int
):
    def fail(_body):
        raise error

    bench.serve(EchoEngine(fail))
    claim = bench.claim()
    refused = bench.chat(claim)
    assert refused.status_code == status
    assert str(error) in refused.json()["error"]["message"]
    (call,) = bench.calls(claim)
    assert not call.complete
    assert str(error) in call.error
    assert bench.endpoint.report()["failed"] == 1


def test_a_model_servers_error_is_passed_on_with_status_and_headers(bench: Bench):
    async def busy(_request):
        return JSONResponse({"error": {"message": "slow down"}}, 429, headers={"retry-after": "9"})

    with model_server(busy) as url:
        bench.endpoint.serve(bench.run_id, LLM(model="policy"), EngineInfo(model="m", base_url=url))
        claim = bench.claim()
        refused = bench.chat(claim)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "9"
    assert refused.json() == {"error": {"message": "slow down"}}
    (call,) = bench.calls(claim)
    assert not call.complete
    assert "429" in call.error
    assert "slow down" in call.error


def test_a_model_server_gets_the_key_and_is_recorded_by_address(bench: Bench):
    seen = []

    async def answer(request):
        seen.append((request.headers["authorization"], await request.json()))
        return JSONResponse(reply_to(seen[-1][1]))

    with model_server(answer) as url:
        engine = EngineInfo(model="engine-name", base_url=url)
        bench.endpoint.serve(bench.run_id, LLM(model="policy"), engine, api_key="sk-secret-key")
        claim = bench.claim()
        assert bench.chat(claim, "hi").status_code == 200
        (call,) = bench.calls(claim)
        assert call.base_url == url
    assert seen[0][0] == "Bearer sk-secret-key"
    assert seen[0][1]["model"] == "engine-name"
    assert list(call.choices[0].response_ids) == [104, 105]
    assert "sk-secret-key" not in repr(bench.spans(claim))


def test_a_reply_that_is_not_json_is_a_clear_502(bench: Bench):
    async def page(_request):
        return PlainTextResponse("<html>proxy</html>")

    with model_server(page) as url:
        bench.endpoint.serve(bench.run_id, LLM(model="policy"), EngineInfo(model="m", base_url=url))
        claim = bench.claim()
        refused = bench.chat(claim)
    assert refused.status_code == 502
    assert url in refused.json()["error"]["message"]
    assert not bench.calls(claim)[0].complete


def test_a_model_server_that_is_gone_is_a_clear_502(bench: Bench):
    with model_server(lambda _: None) as url:
        pass
    bench.endpoint.serve(bench.run_id, LLM(model="policy"), EngineInfo(model="m", base_url=url))
    refused = bench.chat(bench.claim())
    assert refused.status_code == 502
    assert f"{url} cannot be reached" in refused.json()["error"]["message"]


def test_a_reply_without_choices_is_recorded_as_incomplete(bench: Bench):
    bench.serve(EchoEngine(lambda body: {"model": body["model"]}))
    claim = bench.claim()
    assert bench.chat(claim).status_code == 200
    (call,) = bench.calls(claim)
    assert not call.complete
    assert bench.endpoint.report()["incomplete"] == 1


def test_a_server_without_token_ids_is_named_once_and_counted(bench: Bench, caplog):
    async def answer(request):
        reply = reply_to(body := await request.json())
        assert "return_token_ids" not in body
        assert "logprobs" not in body
        del reply["prompt_token_ids"], reply["choices"][0]["token_ids"]
        return JSONResponse(reply)

    with model_server(answer) as url:
        engine = EngineInfo(model="m", base_url=url, returns_token_ids=False)
        bench.endpoint.serve(bench.run_id, LLM(model="policy"), engine)
        claim = bench.claim()
        with caplog.at_level(logging.WARNING, "agentlightning.endpoint"):
            assert [bench.chat(claim).status_code for _ in range(3)] == [200, 200, 200]
    assert all(call.complete for call in bench.calls(claim))
    assert bench.endpoint.report()["without_token_ids"] == 3
    assert len([r for r in caplog.records if "RL is off for this model" in r.getMessage()]) == 1


def test_the_openai_client_works_unpatched(bench: Bench):
    bench.serve(EchoEngine())
    claim = bench.claim()
    with openai.OpenAI(
        base_url=bench.base(claim), api_key=claim.token, http_client=httpx.Client()
    ) as client:
        reply = client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "hello"}], n=1, logprobs=True
        )
        assert [model.id for model in client.models.list()] == ["policy"]
    assert reply.choices[0].message.content == "hello"
    assert reply.choices[0].logprobs.content[0].logprob == -0.5
    assert len(bench.calls(claim)) == 1
