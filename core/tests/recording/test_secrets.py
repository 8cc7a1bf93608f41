"""Keys and media through every way something is recorded: neither reaches a file or a log."""

import base64
import contextlib
import json
import logging

import anthropic
import httpx
import httpx2
import openai
import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.engine import EngineInfo
from agentlightning.errors import Deadline, ModelCallFailed, StoreUnavailable
from agentlightning.recording import defaults
from agentlightning.recording.attempt import attempt
from agentlightning.recording.emit import emit
from agentlightning.recording.emitters import emit_exception, emit_object, operation
from agentlightning.recording.recorder import Recorder
from agentlightning.recording.sink import Sink
from agentlightning.records import LLM, Passthrough, RolloutRequest, Route, to_json
from agentlightning.server import Server, build_app
from agentlightning.testing.model_server import RawReply
from agentlightning_sqlite.store import SqliteStore

pytestmark = pytest.mark.usefixtures("installed")

KEY = "marked-key-0123456789"
HEADER = "marked-header-0123456789"
ROUTE = "marked-route-0123456789"
QUERY = "marked-query-0123456789"
MARKS = (KEY, HEADER, ROUTE, QUERY)

HELLO = [{"role": "user", "content": "hi"}]
CHAT = {"model": "m", "messages": HELLO}
MORE = {
    "extra_headers": {"X-Token": HEADER, "Authorization": f"Bearer {HEADER}"},
    "extra_query": {"api-key": QUERY},
    "extra_body": {"api_key": KEY, "metadata": {"Authorization": f"Bearer {KEY}"}},
}


class Away(SqliteStore):
    """A store whose spans have to wait on disk."""

    away = False

    def add_spans(self, spans):
        if self.away:
            raise StoreUnavailable("away")
        return super().add_spans(spans)


def sdk(server):
    with_password = server.url.replace("://", f"://user:{QUERY}@")
    return openai.OpenAI(
        base_url=with_password,
        api_key=KEY,
        default_headers={"X-Default": HEADER},
        max_retries=0,
    )


def plain(server):
    sdk(server).chat.completions.create(**CHAT, **MORE)


def raw(server):
    sdk(server).chat.completions.with_raw_response.create(**CHAT, **MORE)


def streamed(server):
    for _ in sdk(server).chat.completions.create(**CHAT, **MORE, stream=True):
        pass


def left_early(server):
    with sdk(server).chat.completions.create(**CHAT, **MORE, stream=True) as stream:
        next(iter(stream))


def responses(server):
    sdk(server).responses.create(
        model="m",
        input="hi",
        tools=[
            {
                "type": "mcp",
                "server_label": "x",
                "server_url": "http://x",
                "authorization": KEY,
                "headers": {"X-Token": HEADER},
            }
        ],
        **MORE,
    )


def refused(server):
    """The server tells what it was sent."""
    server.reply = lambda request: RawReply(
        json.dumps({"error": {"message": f"no: {dict(request.headers)}"}}).encode(), status=401
    )
    try:
        plain(server)
    except openai.AuthenticationError as error:
        emit_exception(error)
        with contextlib.suppress(RuntimeError), operation("next"):
            raise RuntimeError("again") from error


def unreachable(server):
    gone = f"http://user:{QUERY}@127.0.0.1:9/v1?key={QUERY}"
    with contextlib.suppress(openai.APIConnectionError):
        openai.OpenAI(base_url=gone, api_key=KEY, max_retries=0).chat.completions.create(**CHAT, **MORE)


def azure(server):
    client = openai.AzureOpenAI(
        azure_endpoint=server.url.removesuffix("/v1"), api_key=KEY, api_version="1", max_retries=0
    )
    client.chat.completions.create(**CHAT, **MORE)


def messages(server):
    client = anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key=KEY, max_retries=0)
    client.messages.create(model="m", max_tokens=9, messages=HELLO, **MORE)


def posted(server):
    for library in (httpx, httpx2):
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"api-key": KEY, "X-Token": HEADER}):
            url = f"{server.url}/chat/completions?api-key={QUERY}"
            library.post(url, json={**CHAT, "api_key": KEY}, headers=headers)


def posted_and_refused(server):
    server.reply = lambda request: RawReply(str(dict(request.headers)).encode(), status=403)
    posted(server)


def asked(server):
    emit("hi")


def asked_in_vain(server):
    server.reply = lambda request: RawReply(str(dict(request.headers)).encode(), status=500)
    with contextlib.suppress(ModelCallFailed):
        emit("hi")


def told(server):
    error = ValueError(f"Authorization: Bearer {KEY}")
    emit_object({"client": {"api_key": KEY, "headers": {"Authorization": HEADER}}})
    emit_exception(error)
    handle = Recorder().start("tool", "t", attributes={"x-api-key": KEY, "extra_headers": MORE})
    handle.tool_result({"cookie": [KEY]})
    handle.error(error)
    handle.end()
    with operation("o", api_key=KEY, default_headers=[("X", HEADER)]), contextlib.suppress(ValueError):
        raise error


def by_langchain(server):
    chat = pytest.importorskip("langchain_openai", reason="langchain is not installed here").ChatOpenAI
    model = chat(
        model="m",
        base_url=server.url,
        api_key=KEY,
        default_headers={"X-Token": HEADER},
        extra_body={"api_key": KEY},
        max_retries=0,
    )
    model.invoke("hi")
    list(model.stream("hi"))


WAYS = [
    plain, raw, streamed, left_early, responses, refused, unreachable, azure, messages, posted,
    posted_and_refused, asked, asked_in_vain, told, by_langchain,
]  # fmt: skip


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTLIGHTNING_SPILL", str(tmp_path / "spill"))
    with Away(f"sqlite:///{tmp_path / 'runs.db'}") as opened:
        yield opened


@pytest.fixture
def claim(store):
    run = store.create_run("test", {})
    store.publish(run.run_id, {"llm": LLM(model="policy")})
    store.enqueue(run.run_id, [RolloutRequest(input="task")])
    (claimed,) = store.claim(run.run_id, "worker")
    return claimed


@pytest.fixture(autouse=True)
def environment(monkeypatch, server):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(defaults, "_current", defaults._Current())
    defaults.configure(model="m", base_url=server.url, store="memory://")


def assert_no_mark_in(text):
    """Nor in base64, as HTTP sends passwords."""
    for mark in MARKS:
        coded = base64.b64encode(f"user:{mark}".encode()).decode()
        for found in (mark, coded[4:-4]):
            at = text.find(found)
            assert at < 0, text[max(0, at - 200) : at + 50]


def logged(caplog):
    ours = [record for record in caplog.records if record.name.startswith("agentlightning")]
    return "\n".join(logging.Formatter().format(record) for record in ours)


def everything_in(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@pytest.mark.parametrize("routed", [False, True], ids=["as it is", "routed"])
@pytest.mark.parametrize("way", WAYS)
def test_no_key_reaches_the_store_or_a_log(store, claim, server, tmp_path, caplog, way, routed):
    caplog.set_level(logging.DEBUG)
    route = Route(headers={"X-Route": ROUTE}).with_key(ROUTE) if routed else Passthrough(reason="test")
    sink = Sink(store)
    with attempt(claim, sink, resolve=lambda info: route):
        way(server)
    sink.close()
    spans = list(store.spans([claim.key.rollout_id]))
    assert len(spans) > 1
    store.close()
    assert_no_mark_in(b"\n".join(map(to_json, spans)).decode())
    assert_no_mark_in(everything_in(tmp_path))
    assert_no_mark_in(logged(caplog))


def test_no_key_reaches_the_files_of_spans_that_wait(store, claim, server, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    store.away = True
    sink = Sink(store)
    with attempt(claim, sink, resolve=lambda info: Passthrough(reason="test")):
        for way in (plain, streamed, told, refused):
            way(server)
    with pytest.raises(Deadline, match="next process"):
        sink.close(timeout_s=0)
    (waiting,) = (tmp_path / "spill").rglob("*.jsonl")
    assert len(waiting.read_bytes().splitlines()) > 4
    assert waiting.stat().st_mode & 0o077 == 0
    assert_no_mark_in(everything_in(tmp_path))
    assert_no_mark_in(logged(caplog))


@pytest.mark.parametrize("refuses", [False, True], ids=["good", "refused"])
def test_no_key_passes_through_the_endpoint(store, claim, server, tmp_path, caplog, refuses):
    caplog.set_level(logging.DEBUG)
    if refuses:
        server.reply = lambda request: RawReply(str(dict(request.headers)).encode(), status=401)
    sink = Sink(store)
    endpoint = Endpoint(store, sink)
    engine = EngineInfo(base_url=server.url, model="policy")
    endpoint.serve(claim.run.run_id, LLM(model="policy"), engine, api_key=ROUTE)
    with Server(build_app(endpoint)) as serving:
        place = f"{serving.url}/rollout/{claim.key.rollout_id}/attempt/{claim.key.number}/v1"
        client = openai.OpenAI(base_url=place, api_key=claim.token, max_retries=0)
        for stream in (False, True):
            with contextlib.suppress(openai.APIStatusError):
                reply = client.chat.completions.create(
                    model="policy",
                    messages=HELLO,
                    stream=stream,
                    extra_headers={"X-Token": HEADER},
                    extra_query={"api-key": QUERY},
                    extra_body={"api_key": KEY},
                )
                list(reply)
    sink.close()
    spans = list(store.spans([claim.key.rollout_id]))
    assert len([span for span in spans if span.kind == "llm"]) == 2
    store.close()
    recorded = b"\n".join(map(to_json, spans)).decode()
    assert claim.token not in recorded
    assert claim.token not in logged(caplog)
    assert_no_mark_in(recorded)
    assert_no_mark_in(everything_in(tmp_path))
    assert_no_mark_in(logged(caplog))


def test_a_large_picture_is_replaced_by_size_and_hash_in_requests_and_replies(recording, server):
    payload = base64.b64encode(bytes(range(256)) * 18_000).decode()  # 6 MB as text
    url = f"data:image/png;base64,{payload}"
    content = [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": {"url": "https://example.org/kept.png"}},
    ]
    said = {"role": "assistant", "content": f"it is ![]({url}) as you see"}

    def reply(request):
        choice = {"index": 0, "finish_reason": "stop"}
        whole = json.dumps({"choices": [{**choice, "message": said}]})
        events = f"data: {json.dumps({'choices': [{**choice, 'delta': said}]})}\n\ndata: [DONE]\n\n"
        if request.body.get("stream"):
            return RawReply(events.encode(), content_type="text/event-stream")
        return RawReply(whole.encode())

    server.reply = reply
    client = openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0)
    with recording.rollout() as context:
        asked = [{"role": "user", "content": content}]
        client.chat.completions.create(model="m", messages=asked)
        for _ in client.chat.completions.create(model="m", messages=asked, stream=True):
            pass
        emit_object(url)
        Recorder().start("tool", "t", attributes={"picture": {"url": url}}).end()
    spans = recording.spans(context)
    written = [to_json(span).decode() for span in spans if span.kind != "agent"]
    assert [span.kind for span in spans] == ["llm", "llm", "object", "tool", "agent"]
    for text in written:
        assert len(text) < 5000
        assert "4608000 bytes, sha256 " in text
    for text in written[:2]:
        assert "what is this" in text
        assert "kept.png" in text
        assert "it is ![](" in text
        assert "as you see" in text
