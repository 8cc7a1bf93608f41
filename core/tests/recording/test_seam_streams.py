"""Streamed replies: recorded like whole ones, however the agent reads or leaves them."""

import asyncio
import gc
import json
import socket
import threading

import pytest
from agentlightning.testing.model_server import RawReply

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


SCRIPT = [{"role": "user", "content": 'go [[tool:add:{"a": 1, "b": [2]};;say:the sum is three]]'}]


def test_a_stream_is_recorded_like_a_reply_in_one_piece(recording, client):
    asked = {
        "model": "m",
        "messages": SCRIPT,
        "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }
    with recording.rollout() as context:
        model = client()
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


LEAVE = [leave_by_break, leave_by_close, leave_by_dropping, leave_by_error]


@pytest.mark.parametrize("leave", LEAVE)
def test_a_stream_left_early_is_one_incomplete_record(recording, server, leave, client):
    server.reply = lambda request: "aaaabbbbcccc"
    with recording.rollout() as context:
        leave(client().chat.completions.create(model="m", messages=HI, stream=True))
        gc.collect()
        (call,) = recording.calls(context)
    assert len(recording.calls(context)) == 1
    assert not call.complete
    assert call.choices[0].message["content"].startswith("aaaa")


async def leave_awaited_by_break(stream):
    async with stream:
        async for _ in stream:
            break


async def leave_awaited_by_close(stream):
    await anext(stream)
    await stream.close()


async def leave_awaited_by_dropping(stream):
    await anext(stream)
    del stream
    gc.collect()
    await asyncio.sleep(0.01)  # the loop closes generators that were dropped


async def leave_awaited_by_cancelling(stream):
    async def consume():
        async for _ in stream:
            await asyncio.sleep(5)

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stream.close()


LEAVE_AWAITED = [
    leave_awaited_by_break,
    leave_awaited_by_close,
    leave_awaited_by_dropping,
    leave_awaited_by_cancelling,
]


@pytest.mark.parametrize("leave", LEAVE_AWAITED)
def test_an_awaited_stream_left_early_is_one_incomplete_record(recording, server, leave, async_client):
    server.reply = lambda request: "aaaabbbbcccc"

    async def main():
        async with async_client() as model:
            await leave(await model.chat.completions.create(model="m", messages=HI, stream=True))

    with recording.rollout() as context:
        asyncio.run(main())
        gc.collect()
        (call,) = recording.calls(context)
    assert len(recording.calls(context)) == 1
    assert not call.complete
    assert call.choices[0].message["content"].startswith("aaaa")


def test_a_stream_cancelled_while_it_waits_for_bytes_says_so(recording, slow, async_client):
    async def main():
        async with async_client(base_url=slow) as model:
            stream = await model.chat.completions.create(model="m", messages=HI, stream=True)

            async def consume():
                return [chunk async for chunk in stream]

            await asyncio.wait_for(consume(), 0.1)

    with recording.rollout() as context, pytest.raises(TimeoutError):
        asyncio.run(main())
    (call,) = recording.calls(context)
    assert not call.complete
    assert "CancelledError" in call.error
    assert call.choices[0].message["content"] == "He"


@pytest.fixture
def slow():
    """A server that sends one event and then nothing; the body never ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    event = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "He"}}]}\n\n'
    over = threading.Event()

    def serve():
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            connection.sendall(head + event)
            over.wait(5)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    over.set()
    thread.join(5)
    listening.close()


def test_a_reply_read_to_its_last_choice_is_whole_though_nobody_reads_on(recording, client):
    with recording.rollout() as context:
        stream = client().chat.completions.create(model="m", messages=HI, stream=True)
        for chunk in stream:
            if chunk.choices[0].finish_reason:
                break  # and the stream stays open beyond the end of its attempt
    (call,) = recording.calls(context)
    assert call.complete
    assert call.choices[0].message["content"] == "ok"
    stream.close()
    assert len(recording.calls(context)) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_several_choices_of_a_stream_are_several_choices_of_its_record(recording, client, whole):
    asked = {"model": "m", "messages": HI, "n": 3, "extra_body": {"return_token_ids": True}}
    with (
        recording.rollout() as context,
        client().chat.completions.create(**asked, stream=True) as stream,
    ):
        for chunk in stream:
            if not whole and chunk.choices[0].finish_reason:
                break  # the first choice is there, the others are not
    (call,) = recording.calls(context)
    assert call.complete is whole
    assert [choice.index for choice in call.choices] == ([0, 1, 2] if whole else [0])
    assert {bytes(choice.response_ids) for choice in call.choices} == {b"ok<end>"}


def test_a_stream_of_completions_is_recorded(recording, client):
    with recording.rollout() as context:
        list(client().completions.create(model="m", prompt=["a", "b"], stream=True))
        client().completions.create(model="m", prompt="a")
    streamed, whole = recording.calls(context)
    assert streamed.choices[0].message == whole.choices[0].message == {"text": "ok"}
    assert streamed.complete


def test_a_response_stream_left_early_keeps_its_text(recording, server, client):
    server.reply = lambda request: "aaaabbbbcccc"
    with (
        recording.rollout() as context,
        client().responses.create(model="m", input="hi", stream=True) as stream,
    ):
        for event in stream:
            if event.type == "response.output_text.delta":
                break
    (call,) = recording.calls(context)
    assert not call.complete
    assert "aaaa" in str(call.choices[0].message)


def test_the_helpers_of_a_stream_still_work(recording, client):
    with recording.rollout() as context:
        with client().chat.completions.stream(model="m", messages=HI) as stream:
            assert stream.get_final_completion().choices[0].message.content == "ok"
        with client().responses.stream(model="m", input="hi") as events:
            assert events.get_final_response().output_text == "ok"
    assert [call.complete for call in recording.calls(context)] == [True, True]


def test_a_streamed_response_read_raw_is_recorded(recording, client):
    asked = {"model": "m", "messages": HI, "stream": True}
    with recording.rollout() as context:
        with client().chat.completions.with_streaming_response.create(**asked) as reply:
            assert b"".join(reply.http_response.iter_raw()).endswith(b"data: [DONE]\n\n")
        with client().chat.completions.with_streaming_response.create(**asked) as reply:
            assert list(reply.iter_lines())[-2] == "data: [DONE]"
    assert [call.complete for call in recording.calls(context)] == [True, True]


def test_an_awaited_stream_is_recorded_whole_or_left_early(recording, server, async_client):
    server.reply = lambda request: "aaaabbbbcccc"

    async def main():
        async with async_client() as model:
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


def test_a_stream_still_open_at_the_end_of_its_attempt_is_one_incomplete_record(recording, client):
    with recording.rollout() as context:
        stream = client().chat.completions.create(model="m", messages=HI, stream=True)
        next(iter(stream))
    stream.close()
    (call,) = recording.calls(context)
    assert not call.complete
    assert "was over" in call.error


def test_a_stream_that_is_cut_or_malformed_is_one_incomplete_record(recording, server, client):
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
        model = client()
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


IDS = [{"prompt_token_ids": [1, 2], "choices": [{"index": 0, "delta": {"content": "He"}, "token_ids": [3]}]},
       {"choices": [{"index": 0, "delta": {"content": "llo"}, "token_ids": [4, 5]}]},
       {"choices": [{"index": 0, "delta": {}, "token_ids": [6], "finish_reason": "stop"}]}]  # fmt: skip
COUNTS = {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}


@pytest.mark.parametrize(
    ("last", "usage"),
    [
        ({"choices": [], "usage": COUNTS}, COUNTS),
        ({"choices": None, "usage": None}, None),
        ({"choices": [], "usage": {**COUNTS, "prompt_tokens_details": None}}, COUNTS),
    ],
)
def test_ids_spread_over_chunks_and_a_last_chunk_with_only_usage(
    recording, server, client, last, usage
):
    sent = [{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **chunk}
            for chunk in (*IDS, last)]  # fmt: skip
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in sent) + "data: [DONE]\n\n"
    server.reply = lambda request: RawReply(events.encode(), content_type="text/event-stream")
    asked = {"model": "m", "messages": HI, "stream": True, "extra_body": {"tools": None}}
    with recording.rollout() as context:
        chunks = list(client().chat.completions.create(**asked))
    assert [chunk.to_dict(exclude_unset=True) for chunk in chunks] == sent
    (call,) = recording.calls(context)
    assert call.complete
    assert (list(call.prompt_ids), list(call.choices[0].response_ids)) == ([1, 2], [3, 4, 5, 6])
    assert call.choices[0].message["content"] == "Hello"
    assert (call.usage and {key: call.usage[key] for key in COUNTS}) == usage


def test_with_streaming_response_is_recorded(recording, client):
    with recording.rollout() as context:
        with client().chat.completions.with_streaming_response.create(model="m", messages=HI) as reply:
            assert reply.parse().choices[0].message.content == "ok"
        with client().chat.completions.with_streaming_response.create(model="m", messages=HI) as reply:
            pass
    read, unread = recording.calls(context)
    assert read.complete
    assert read.choices[0].message["content"] == "ok"
    assert not unread.complete
