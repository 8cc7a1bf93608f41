"""Of two agents one is trained: what the other sends is byte for byte what it is without us.

The server reads from the socket, so that every header line counts, with its order and its case.
"""

import asyncio
import json
import socketserver
import threading

import anthropic
import httpx
import openai
import pytest
from agentlightning.llm_api import api_of_path
from agentlightning.recording import seam, threads
from agentlightning.recording.recorder import Recorder
from agentlightning.records import Passthrough, Route
from agentlightning.testing.model_bodies import (
    chat_body,
    chat_chunks,
    completion_body,
    responses_body,
)
from agentlightning.testing.model_message_bodies import message_body, message_events

BODIES = {
    "chat": chat_body,
    "completions": completion_body,
    "responses": responses_body,
    "messages": message_body,
}


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while head := self.read_head():
            lines = head.lower().splitlines()
            length = next(int(line.split(b":")[1]) for line in lines if b"content-length:" in line)
            content = self.rfile.read(length)
            self.server.seen.append(head + content)
            self.wfile.write(self.reply(head, json.loads(content)))

    def read_head(self):
        head = b""
        while line := self.rfile.readline():
            head += line
            if line == b"\r\n":
                return head
        return b""

    def reply(self, head, body):
        if "BUSY" in str(body) and b"x-stainless-retry-count: 0" in head.lower():
            return b"HTTP/1.1 503 Busy\r\nretry-after-ms: 1\r\ncontent-length: 0\r\n\r\n"
        api = api_of_path(head.split()[1].decode())
        whole, kind = BODIES[api](body), b"application/json"
        content = json.dumps(whole).encode()
        if body.get("stream"):
            pieces = (
                message_events(whole) if api == "messages" else chat_chunks(whole, include_usage=False)
            )
            content, kind = b"".join(self.event(piece) for piece in pieces), b"text/event-stream"
        return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
            kind, len(content), content)  # fmt: skip

    def event(self, piece):
        return f"event: {piece.get('type', 'x')}\ndata: {json.dumps(piece)}\n\n".encode()


class RawServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def raw():
    server = RawServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


def asked(text):
    return {
        "model": "m",
        "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": text}],
    }


class Team:
    """Two agents, writer and critic, that share the clients and take turns."""

    def __init__(self, url):
        shared = {"api_key": "sk-team", "max_retries": 1}
        self.url = url
        self.openai = openai.OpenAI(
            base_url=f"{url}/v1", organization="o", default_query={"q": "1"}, **shared
        )
        self.azure = openai.AzureOpenAI(azure_endpoint=url, api_version="v", **shared)
        self.anthropic = anthropic.Anthropic(base_url=url, **shared)
        self.shared = shared

    def work(self):
        recorder = Recorder()
        for step in (self.chat, self.others, self.claude, self.plain, self.awaited):
            for name in ("writer", "critic"):
                with recorder.agent(name):
                    step(name)

    def chat(self, name):
        chats = self.openai.chat.completions
        chats.create(**asked(f"{name} é BUSY"), extra_headers={"X-Mine": "1", "Idempotency-Key": "k"},
                     extra_body={"temperature": 0.5}, extra_query={"r": "2"})  # fmt: skip
        list(chats.create(**asked(name), stream=True))
        chats.with_raw_response.create(**asked(name))
        with chats.with_streaming_response.create(**asked(name)) as reply:
            reply.read()

    def others(self, name):
        self.openai.responses.create(model="m", input=name, instructions="be")
        self.openai.completions.create(model="m", prompt=name)
        self.openai.with_options(timeout=7).chat.completions.create(**asked(name))
        self.azure.chat.completions.create(**asked(name))

    def claude(self, name):
        messages = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": name}]}
        self.anthropic.messages.create(**messages, system="be")
        with self.anthropic.messages.stream(**messages) as stream:
            stream.get_final_message()

    def plain(self, name):
        url = f"{self.url}/v1/chat/completions"
        httpx.post(url, json=asked(name), headers={"Authorization": "Bearer sk-team"})
        with httpx.stream("POST", url, json={**asked(name), "stream": True}) as reply:
            reply.read()

    def awaited(self, name):
        async def ask():
            async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", **self.shared) as client:
                await client.chat.completions.create(**asked(name))
                async for _ in await client.chat.completions.create(**asked(name), stream=True):
                    pass

        asyncio.run(ask())


@pytest.mark.parametrize("decision", [Passthrough(reason="not trained"), None])
@pytest.mark.parametrize("trained", ["moved", "prompted"])
def test_the_untrained_agents_requests_are_the_same_to_the_byte(
    recording, server, raw, decision, trained
):
    def critic():
        return [request for request in raw.seen if b"critic" in request]

    Team(raw.url).work()
    without, raw.seen = critic(), []
    routes = {
        "moved": Route(base_url=server.url, model="policy").with_key("token"),
        "prompted": Route(system_prompt="be better", extra_body={"temperature": 1.0}),
    }
    seam.install()
    threads.install()
    try:
        with recording.rollout(
            lambda info: routes[trained] if info.agent == "writer" else decision
        ) as context:
            Team(raw.url).work()
    finally:
        threads.uninstall()
        seam.uninstall()
    assert critic() == without
    assert len(without) == 15
    assert b"x-agentlightning" not in b"".join(without).lower()
    writers = [request for request in raw.seen if b"writer" in request]
    assert len(server.requests) == (0 if writers else 14)
    assert all(b"be better" in request for request in writers if b"/v1/completions" not in request)
    agents = [call.agent for call in recording.calls(context) if call.complete]
    assert sorted(set(agents)) == ["critic", "writer"]
    assert agents.count("critic") == agents.count("writer") == 14
