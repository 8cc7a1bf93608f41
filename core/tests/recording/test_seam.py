import asyncio
import gc
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from agentlightning import semconv
from agentlightning.errors import RolloutCancelled, UnroutedCall
from agentlightning.llm_api import read_call_headers
from agentlightning.recording import seam
from agentlightning.recording.recorder import Recorder
from agentlightning.records import Passthrough, Route
from agentlightning.testing.model_server import RawReply
from openai import _base_client
from pydantic import BaseModel

pytestmark = pytest.mark.usefixtures("installed")

KEY = "sk-the-users-own-secret-key"
HI = [{"role": "user", "content": "hi"}]


def client(server, **options):
    return openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, **options)


def async_client(server, **options):
    return openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0, **options)


class Answer(BaseModel):
    a: int


def test_a_call_is_recorded_with_what_was_sent_and_what_came_back(recording, server):
    with recording.rollout() as context:
        reply = client(server).chat.completions.create(model="m", messages=HI, temperature=0.5, logprobs=True,
                                                       extra_body={"return_token_ids": True})  # fmt: skip
    assert reply.choices[0].message.content == "ok"
    (call,) = recording.calls(context)
    assert call.request == server.requests[0].body
    assert (call.model, call.temperature, call.complete, call.streamed) == ("m", 0.5, True, False)
    assert call.response_id == reply.id
    assert call.usage["prompt_tokens"] == len(call.prompt_ids)
    assert bytes(call.choices[0].response_ids) == b"ok<end>"
    assert list(call.choices[0].logprobs) == [-0.25] * 7
    assert call.base_url == server.url


WAYS = {
    "create": lambda m: m.chat.completions.create(model="m", messages=HI),
    "parse": lambda m: m.chat.completions.parse(model="m", messages=HI, response_format=Answer),
    "raw": lambda m: m.chat.completions.with_raw_response.create(model="m", messages=HI),
    "responses": lambda m: m.responses.create(model="m", input="hi"),
    "responses_parse": lambda m: m.responses.parse(model="m", input="hi", text_format=Answer),
    "responses_raw": lambda m: m.responses.with_raw_response.create(model="m", input="hi"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_gives_one_record(recording, server, way):
    server.reply = lambda request: '{"a": 1}'
    with recording.rollout() as context:
        result = WAYS[way](client(server))
    if "parse" in way:
        parsed = result.output_parsed if "responses" in way else result.choices[0].message.parsed
        assert parsed == Answer(a=1)
    if "raw" in way:
        assert result.parse().id
    (call,) = recording.calls(context)
    assert call.complete
    assert call.usage
    assert '{"a": 1}' in str(call.choices[0].message)


async def _ask_async(server, way):
    async with async_client(server) as model:
        return await WAYS[way](model)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_gives_one_record_when_awaited(recording, server, way):
    server.reply = lambda request: '{"a": 1}'
    with recording.rollout() as context:
        asyncio.run(_ask_async(server, way))
    (call,) = recording.calls(context)
    assert call.complete
    assert '{"a": 1}' in str(call.choices[0].message)


def test_a_client_built_before_the_seam_is_covered(recording, server):
    seam.uninstall()
    early = client(server)
    seam.install()
    with recording.rollout() as context:
        early.chat.completions.create(model="m", messages=HI)
    assert len(recording.calls(context)) == 1


def test_outside_a_rollout_nothing_changes(recording, server):
    client(server).chat.completions.create(model="m", messages=HI)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert not [name for name in server.requests[0].headers if name.startswith("x-agentlightning")]


def test_a_route_redirects_url_model_key_headers_and_body(recording, server):
    route = Route(base_url=server.url, model="policy", headers={"x-extra": "1"},
                  extra_body={"return_token_ids": True, "temperature": 1.0}).with_key("our-token")  # fmt: skip
    model = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key=KEY, max_retries=0)
    with recording.rollout(lambda info: route) as context:
        messages = [dict(HI[0])]
        model.chat.completions.create(model="gpt", messages=messages, temperature=0.1,
                                      extra_headers={"AUTHORIZATION": f"Bearer {KEY}"},
                                      extra_body={"return_token_ids": False, "top_k": 5})  # fmt: skip
    (seen,) = server.requests
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == "Bearer our-token"
    assert seen.headers["x-extra"] == "1"
    assert KEY not in str(seen)
    expected = {
        "model": "policy",
        "messages": HI,
        "temperature": 1.0,
        "return_token_ids": True,
        "top_k": 5,
    }
    assert seen.body == expected
    (call,) = recording.calls(context)
    assert call.request == expected
    assert str(model.base_url) == "http://127.0.0.1:9/v1/"
    assert messages == HI


def test_the_users_key_does_not_follow_a_call_to_another_server(recording, server):
    model = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key=KEY, max_retries=0)
    azure = openai.AzureOpenAI(
        azure_endpoint="http://127.0.0.1:9", api_key=KEY, api_version="v", max_retries=0
    )
    with recording.rollout(lambda info: Route(base_url=server.url)):
        model.chat.completions.create(model="m", messages=HI)
        azure.chat.completions.create(model="m", messages=HI)
    assert len(server.requests) == 2
    assert KEY not in str(server.requests)


def test_the_prompt_of_one_agent_is_replaced_and_the_others_are_untouched(recording, server):
    def resolve(info):
        if info.agent == "writer":
            return Route(system_prompt="new")
        return Passthrough(reason="agent not trained")

    recorder = Recorder()
    messages = [{"role": "system", "content": "old"}, *HI]
    with recording.rollout(resolve) as context:
        with recorder.agent("writer"):
            client(server).chat.completions.create(model="m", messages=messages)
            client(server).responses.create(model="m", input="hi", instructions="old")
            client(server).chat.completions.create(model="m", messages=HI)
        with recorder.agent("critic"):
            client(server).chat.completions.create(model="m", messages=messages)
    bodies = [request.body for request in server.requests]
    assert bodies[0]["messages"][0] == {"role": "system", "content": "new"}
    assert bodies[1]["instructions"] == "new"
    assert bodies[2]["messages"] == [{"role": "system", "content": "new"}, *HI]
    assert bodies[3]["messages"] == messages
    assert messages[0]["content"] == "old"
    spans = recording.spans(context, "llm")
    assert [span.call.agent for span in spans] == ["writer", "writer", "writer", "critic"]
    assert spans[3].attributes[semconv.ROUTE] == "passthrough: agent not trained"


def test_keys_are_never_recorded(recording, server, caplog):
    caplog.set_level(logging.DEBUG, "agentlightning")
    server.reply = lambda request: RawReply(
        f'{{"error": {{"message": "bad key {KEY}"}}}}'.encode(), status=401
    )
    with recording.rollout() as context:
        with pytest.raises(openai.AuthenticationError):
            client(server).chat.completions.create(
                model="m", messages=HI, extra_headers={"x-api-key": KEY},
                extra_body={"api_key": KEY, "extra_headers": {"token": KEY}})  # fmt: skip
        handle = Recorder().start("tool", "t", attributes={"api_key": KEY})
        handle.error(ValueError(f"no luck with {KEY}"))
        handle.end()
    assert KEY not in str(recording.spans(context))
    assert KEY not in caplog.text


def test_an_error_is_recorded_and_raised_unchanged(recording, server):
    with recording.rollout() as context, pytest.raises(openai.InternalServerError) as raised:
        client(server).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "FAIL500"}]
        )
    assert raised.value.response.status_code == 500
    (span,) = recording.spans(context, "llm")
    assert span.status == "error"
    assert not span.call.complete
    assert "FAIL500 was asked for" in span.call.error


def test_no_answer_at_all_is_recorded(recording):
    model = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key=KEY, max_retries=0)
    with recording.rollout() as context, pytest.raises(openai.APIConnectionError):
        model.chat.completions.create(model="m", messages=HI)
    (call,) = recording.calls(context)
    assert call.error.startswith("APIConnectionError")


def test_sdk_retries_are_one_record(recording, server):
    tries = []

    def reply(request):
        tries.append(request)
        return RawReply(b"{}", status=500) if len(tries) == 1 else "fine"

    server.reply = reply
    model = openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=2)
    with recording.rollout() as context:
        model.chat.completions.create(model="m", messages=HI)
    (call,) = recording.calls(context)
    assert len(tries) == 2
    assert (call.retries, call.complete) == (1, True)


def test_a_reply_that_is_no_json_or_has_no_choices_is_one_incomplete_record(recording, server):
    replies = iter(
        [
            RawReply(b"<html>"),
            RawReply(b"{}"),
            RawReply(b"[1]"),
            RawReply(b'{"choices": null, "usage": null}'),
        ]
    )
    server.reply = lambda request: next(replies)
    with recording.rollout() as context:
        model = client(server)
        for _ in range(4):
            model.chat.completions.with_raw_response.create(model="m", messages=HI)
    calls = recording.calls(context)
    assert [call.complete for call in calls] == [False] * 4
    assert "not JSON" in calls[0].error
    assert "no choices" in calls[3].error
    assert calls[3].usage is None


def test_strict_mode_refuses_what_nobody_routed(recording, server):
    with recording.rollout(lambda info: None, strict=True) as context:
        with pytest.raises(UnroutedCall, match="trained_agents"):
            client(server).chat.completions.create(model="m", messages=HI)
        client(server).models.list()
    assert not server.requests
    assert recording.calls(context) == []


def test_without_strict_mode_an_unrouted_call_goes_on_and_says_so(recording, server):
    with recording.rollout(lambda info: None) as context:
        client(server).chat.completions.create(model="m", messages=HI)
    (span,) = recording.spans(context, "llm")
    assert span.attributes[semconv.ROUTE] == "unrouted"


def test_a_resolver_that_breaks_does_not_break_the_agent(recording, server, caplog):
    with recording.rollout(lambda info: 1 / 0):
        assert client(server).chat.completions.create(model="m", messages=HI).choices
    assert "ZeroDivisionError" in caplog.text
    with recording.rollout(lambda info: 1 / 0, strict=True), pytest.raises(UnroutedCall):
        client(server).chat.completions.create(model="m", messages=HI)


def test_a_cancelled_attempt_ends_at_its_next_call(recording, server):
    with recording.rollout() as context:
        context.life.phase = "cancelled"
        with pytest.raises(RolloutCancelled):
            client(server).chat.completions.create(model="m", messages=HI)
    assert not server.requests


def test_a_call_after_the_attempt_is_over_is_refused_and_counted(recording, server):
    go, outcome = threading.Event(), []

    def late():
        go.wait(5)
        try:
            client(server).chat.completions.create(model="m", messages=HI)
        except RolloutCancelled as error:
            outcome.append(error)

    with recording.rollout() as context:
        thread = threading.Thread(target=late)
        thread.start()
    go.set()
    thread.join()
    assert "is over" in str(outcome[0])
    assert context.life.late == {"llm call": 1}
    assert not server.requests


def test_a_call_to_our_endpoint_is_left_to_it_unless_it_fails_for_good(recording, server):
    failing = [{"role": "user", "content": "FAIL500"}]
    route = Route(base_url=server.url, model="policy").with_key("token")
    with recording.rollout(lambda info: route, endpoint_url=server.url) as context:
        model = client(server)
        with Recorder().agent("schön & gut"):
            model.chat.completions.create(model="m", messages=HI)
        with pytest.raises(openai.InternalServerError):
            model.chat.completions.create(model="m", messages=failing)
        server.stop()
        with pytest.raises(openai.APIConnectionError):
            model.chat.completions.create(model="m", messages=HI)
    errors = [call.error.split(":")[0] for call in recording.calls(context)]
    assert errors == ["InternalServerError", "APIConnectionError"]
    headers = server.requests[0].headers
    assert headers[semconv.HEADER_PARENT] == context.root_span_id
    assert read_call_headers(headers).agent == "schön & gut"
    assert len(headers[semconv.HEADER_SPAN]) == 16
    assert headers["authorization"] == "Bearer token"


def test_rollouts_in_threads_never_mix(recording, server):
    server.delay_s = 0.01
    contexts = {}

    def one(name):
        def resolve(info):
            return Route(model=name)

        with recording.rollout(resolve) as context:
            contexts[name] = context
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda n: client(server).chat.completions.create(
                    model="m", messages=[{"role": "user", "content": f"{name}-{n}"}]), range(3)))  # fmt: skip

    workers = [threading.Thread(target=one, args=(f"r{n}",)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name, context in contexts.items():
        spans = recording.spans(context, "llm")
        assert [span.call.model for span in spans] == [name] * 3
        assert {span.call.request["messages"][0]["content"][:2] for span in spans} == {name}
        assert {span.parent_id for span in spans} == {context.root_span_id}
        assert sorted(span.call.seq for span in spans) == [1, 2, 3]


def test_rollouts_on_one_shared_pool_never_mix(recording, server):
    names = {}
    with ThreadPoolExecutor(2) as pool:

        def ask(text):
            return client(server).chat.completions.create(
                model="m", messages=[{"role": "user", "content": text}]
            )

        def one(name):
            with recording.rollout(lambda info: Route(model=name)) as context:
                names[name] = context
                for future in [pool.submit(ask, name) for _ in range(3)]:
                    future.result()

        workers = [threading.Thread(target=one, args=(name,)) for name in ("x", "y")]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        pool.submit(ask, "outside").result()
    for name, context in names.items():
        assert [call.request["messages"][0]["content"] for call in recording.calls(context)] == [
            name
        ] * 3


def test_rollouts_in_asyncio_never_mix(recording, server):
    server.delay_s = 0.01

    async def one(model, name, contexts):
        with recording.rollout(lambda info: Route(model=name)) as context:
            contexts[name] = context
            await asyncio.gather(
                *(model.chat.completions.create(model="m", messages=HI) for _ in range(3))
            )
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(
                None, lambda: client(server).chat.completions.create(model="m", messages=HI)
            )
            await asyncio.to_thread(client(server).chat.completions.create, model="m", messages=HI)

    async def main():
        contexts = {}
        async with async_client(server) as model:
            await asyncio.gather(*(one(model, f"r{n}", contexts) for n in range(3)))
        return contexts

    for name, context in asyncio.run(main()).items():
        assert [call.model for call in recording.calls(context)] == [name] * 5


def test_a_cancelled_call_is_one_incomplete_record(recording, server):
    server.delay_s = 0.5

    async def main():
        async with async_client(server) as model:
            await asyncio.wait_for(model.chat.completions.create(model="m", messages=HI), 0.05)

    with recording.rollout() as context, pytest.raises(TimeoutError):
        asyncio.run(main())
    (call,) = recording.calls(context)
    assert not call.complete
    assert "CancelledError" in call.error


# --- what users hand in, and large media ------------------------------------------------------


class Fails:
    def __init__(self):
        raise RuntimeError("a class is not to be called")

    def __repr__(self):
        raise RuntimeError("nor shown")


def test_strange_values_neither_break_the_agent_nor_the_record(recording):
    strange = object.__new__(Fails)
    recorder = Recorder()
    with recording.rollout() as context:
        handle = recorder.start(
            "tool",
            "t",
            attributes={
                "cls": Fails,
                1: "x",
                "nan": float("nan"),
                "bytes": b"\xff",
                "odd": strange,
                "lock": threading.Lock(),
            },
        )
        handle.tool_result({"again": [strange, {2: float("inf")}]})
        handle.end()
    (span,) = recording.spans(context, "tool")
    assert span.attributes["1"] == "x"
    assert span.attributes["nan"] == "nan"
    assert "Fails" in span.attributes["cls"]
    assert "repr fails" in span.attributes["odd"]


def test_large_media_are_replaced_and_the_text_kept(recording, server):
    picture = "data:image/png;base64," + "QUJD" * 1_500_000
    content = [{"type": "text", "text": "what is this"},
               {"type": "image_url", "image_url": {"url": picture}},
               {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]  # fmt: skip
    messages = [
        {"role": "user", "content": content},
        {"role": "user", "content": f"see {picture} there"},
    ]
    server.reply = lambda request: picture
    with recording.rollout() as context:
        client(server).chat.completions.create(model="m", messages=messages)
    assert server.requests[0].body["messages"] == messages
    (call,) = recording.calls(context)
    parts = call.request["messages"][0]["content"]
    assert parts[0]["text"] == "what is this"
    assert parts[1]["image_url"]["url"].startswith("[removed: image/png, 4500000 bytes, sha256 ")
    assert parts[2]["image_url"]["url"] == "https://example.org/a.png"
    assert call.request["messages"][1]["content"].startswith("see [removed")
    assert call.request["messages"][1]["content"].endswith("] there")
    assert call.choices[0].message["content"].startswith("[removed")
    assert len(str(call)) < 5_000


# --- streams ----------------------------------------------------------------------------------

SCRIPT = [{"role": "user", "content": 'go [[tool:add:{"a": 1, "b": [2]};;say:the sum is three]]'}]


def drain(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_a_stream_is_recorded_like_a_reply_in_one_piece(recording, server):
    asked = {
        "model": "m",
        "messages": SCRIPT,
        "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }
    with recording.rollout() as context:
        model = client(server)
        for _ in model.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        ):
            pass
        model.chat.completions.create(**asked)
        with model.chat.completions.stream(model="m", messages=HI) as stream:
            stream.until_done()
        for _ in model.responses.create(model="m", input="hi", stream=True):
            pass
    streamed, whole, helper, responses = recording.calls(context)
    assert streamed.streamed
    assert streamed.complete
    assert streamed.prompt_ids == whole.prompt_ids
    assert streamed.choices[0].response_ids == whole.choices[0].response_ids
    assert streamed.choices[0].logprobs == whole.choices[0].logprobs
    function = streamed.choices[0].message["tool_calls"][0]["function"]
    assert function == whole.choices[0].message["tool_calls"][0]["function"]
    assert streamed.choices[0].finish_reason == "tool_calls"
    assert streamed.usage == whole.usage
    assert helper.choices[0].message["content"] == "ok"
    assert helper.complete
    assert responses.complete
    assert responses.choices[0].message["output"][0]["content"][0]["text"] == "ok"


def leave_by_break(stream):
    with stream:
        for _ in stream:
            break


def leave_by_close(stream):
    next(iter(stream))
    stream.close()


def leave_by_dropping(stream):
    next(iter(stream))
    del stream
    gc.collect()


def leave_by_error(stream):
    def consume():
        with stream:
            for _ in stream:
                raise KeyError("in the consumer")

    with pytest.raises(KeyError):
        consume()


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_close, leave_by_dropping, leave_by_error])
def test_a_stream_left_early_is_one_incomplete_record(recording, server, leave):
    server.reply = lambda request: "aaaabbbbcccc"
    with recording.rollout() as context:
        leave(client(server).chat.completions.create(model="m", messages=HI, stream=True))
        gc.collect()
        (call,) = recording.calls(context)
    assert len(recording.calls(context)) == 1
    assert not call.complete
    assert call.choices[0].message["content"].startswith("aaaa")


def test_an_awaited_stream_is_recorded_whole_or_left_early(recording, server):
    server.reply = lambda request: "aaaabbbbcccc"

    async def main():
        async with async_client(server) as model:
            text = ""
            async for chunk in await model.chat.completions.create(model="m", messages=HI, stream=True):
                text += chunk.choices[0].delta.content or ""
            early = await model.chat.completions.create(model="m", messages=HI, stream=True)
            async for _ in early:
                break
            await early.close()
            return text

    with recording.rollout() as context:
        assert asyncio.run(main()) == "aaaabbbbcccc"
    whole, early = recording.calls(context)
    assert whole.complete
    assert whole.choices[0].message["content"] == "aaaabbbbcccc"
    assert not early.complete


def test_a_stream_still_open_at_the_end_of_its_attempt_is_one_incomplete_record(recording, server):
    with recording.rollout() as context:
        stream = client(server).chat.completions.create(model="m", messages=HI, stream=True)
        next(iter(stream))
    stream.close()
    (call,) = recording.calls(context)
    assert not call.complete
    assert "was over" in call.error


def test_a_stream_that_is_cut_or_malformed_is_one_incomplete_record(recording, server):
    cut = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "He"}}]}\n\n'
    replies = iter(
        [
            cut,
            cut + b"data: {nonsense\n\ndata: [DONE]\n\n",
            cut + b'data: {"choices": [], "usage": null}\n\n',
        ]
    )
    server.reply = lambda request: RawReply(next(replies), content_type="text/event-stream")
    with recording.rollout() as context:
        model = client(server)
        for _ in range(3):
            stream = model.chat.completions.create(model="m", messages=HI, stream=True)
            try:
                list(stream)
            except ValueError:
                stream.close()
    calls = recording.calls(context)
    assert [call.complete for call in calls] == [False] * 3
    assert [call.choices[0].message["content"] for call in calls] == ["He"] * 3
    assert "not JSON" in calls[1].error


def test_with_streaming_response_is_recorded(recording, server):
    with recording.rollout() as context:
        with client(server).chat.completions.with_streaming_response.create(
            model="m", messages=HI
        ) as reply:
            assert reply.parse().choices[0].message.content == "ok"
        with client(server).chat.completions.with_streaming_response.create(
            model="m", messages=HI
        ) as reply:
            pass
    read, unread = recording.calls(context)
    assert read.complete
    assert read.choices[0].message["content"] == "ok"
    assert not unread.complete


# --- installing -------------------------------------------------------------------------------


METHODS = [(owner, name) for owner in (_base_client.SyncAPIClient, _base_client.AsyncAPIClient)
           for name in ("request", "_process_response")]  # fmt: skip


@pytest.fixture
def uninstalled():
    seam.uninstall()
    yield [vars(owner)[name] for owner, name in METHODS]
    seam.install()


def test_uninstalling_restores_the_exact_originals_and_installs_are_counted(
    recording, server, uninstalled
):
    seam.install()
    seam.install()
    with recording.rollout() as context:
        client(server).chat.completions.create(model="m", messages=HI)
        seam.uninstall()
        client(server).chat.completions.create(model="m", messages=HI)
        seam.uninstall()
        client(server).chat.completions.create(model="m", messages=HI)
    assert len(recording.calls(context)) == 2
    assert [vars(owner)[name] for owner, name in METHODS] == uninstalled
    seam.uninstall()
    assert [vars(owner)[name] for owner, name in METHODS] == uninstalled


def test_a_wrapper_put_on_top_of_ours_is_not_thrown_away(recording, server, uninstalled, monkeypatch):
    owner, seen = _base_client.SyncAPIClient, []
    seam.install()
    ours = owner.request

    def theirs(self, *args, **kwargs):
        seen.append(1)
        return ours(self, *args, **kwargs)

    monkeypatch.setattr(owner, "request", theirs)
    seam.uninstall()
    assert owner.request is theirs
    with recording.rollout() as context:
        client(server).chat.completions.create(model="m", messages=HI)
        seam.install()
        client(server).chat.completions.create(model="m", messages=HI)
        seam.uninstall()
    assert len(seen) == 2
    assert len(recording.calls(context)) == 1
    monkeypatch.setattr(owner, "request", uninstalled[0])
