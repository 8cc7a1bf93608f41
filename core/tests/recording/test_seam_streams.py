"""Streamed replies: recorded like whole ones, however the agent reads or leaves them."""

import asyncio
import gc

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


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_close, leave_by_dropping, leave_by_error])
def test_a_stream_left_early_is_one_incomplete_record(recording, server, leave, client):
    server.reply = lambda request: "aaaabbbbcccc"
    with recording.rollout() as context:
        leave(client().chat.completions.create(model="m", messages=HI, stream=True))
        gc.collect()
        (call,) = recording.calls(context)
    assert len(recording.calls(context)) == 1
    assert not call.complete
    assert call.choices[0].message["content"].startswith("aaaa")


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
