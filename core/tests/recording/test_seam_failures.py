"""Calls that fail, come too late or are cancelled: one record each, and the agent sees its own error."""

import asyncio
import threading
import traceback

import httpx
import openai
import pytest
from agentlightning.errors import RolloutCancelled
from agentlightning.testing.model_server import RawReply

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


def test_an_error_is_recorded_and_raised_unchanged(recording, client):
    with recording.rollout() as context, pytest.raises(openai.InternalServerError) as raised:
        client().chat.completions.create(model="m", messages=[{"role": "user", "content": "FAIL500"}])
    assert raised.value.response.status_code == 500
    (span,) = recording.spans(context, "llm")
    assert span.status == "error"
    assert not span.call.complete
    assert "FAIL500 was asked for" in span.call.error


def test_the_error_is_the_same_object_with_the_same_end_of_its_traceback(recording, client):
    class Broken(Exception):
        pass

    error = Broken("in the transport")

    def handler(request):
        raise error

    model = client(http_client=httpx.Client(transport=httpx.MockTransport(handler)))
    for ask in (model.chat.completions.create, model.chat.completions.with_raw_response.create):
        with recording.rollout() as context, pytest.raises(Exception) as raised:
            ask(model="m", messages=HI)
        if raised.value is not error:  # some lines wrap what they do not know
            assert raised.value.__cause__ is error
        inside = traceback.extract_tb(raised.value.__traceback__)[-1].filename
        assert "agentlightning" not in inside
        assert traceback.extract_tb(error.__traceback__)[-1].name == "handler"
        (call,) = recording.calls(context)
        assert not call.complete


def test_an_interrupt_is_recorded_and_goes_on(recording, client):
    def interrupted(request):
        raise KeyboardInterrupt

    model = client(http_client=httpx.Client(transport=httpx.MockTransport(interrupted)))
    with recording.rollout() as context, pytest.raises(KeyboardInterrupt):
        model.chat.completions.create(model="m", messages=HI)
    (call,) = recording.calls(context)
    assert call.error == "KeyboardInterrupt"


def test_no_answer_at_all_is_recorded(recording, client):
    model = client(base_url="http://127.0.0.1:9/v1")
    with recording.rollout() as context, pytest.raises(openai.APIConnectionError):
        model.chat.completions.create(model="m", messages=HI)
    (call,) = recording.calls(context)
    assert call.error.startswith("APIConnectionError")


def test_a_reply_that_is_no_json_or_has_no_choices_is_one_incomplete_record(recording, server, client):
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
        model = client()
        for _ in range(4):
            model.chat.completions.with_raw_response.create(model="m", messages=HI)
    calls = recording.calls(context)
    assert [call.complete for call in calls] == [False] * 4
    assert "not JSON" in calls[0].error
    assert "no choices" in calls[3].error
    assert calls[3].usage is None


def test_a_cancelled_attempt_ends_at_its_next_call(recording, server, client):
    with recording.rollout() as context:
        context.life.phase = "cancelled"
        with pytest.raises(RolloutCancelled):
            client().chat.completions.create(model="m", messages=HI)
    assert not server.requests


def test_a_call_after_the_attempt_is_over_is_refused_and_counted(recording, server, client):
    go, outcome = threading.Event(), []

    def late():
        go.wait(5)
        try:
            client().chat.completions.create(model="m", messages=HI)
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


def test_a_cancelled_call_is_one_incomplete_record(recording, server, async_client):
    server.delay_s = 0.5

    async def main():
        async with async_client() as model:
            await asyncio.wait_for(model.chat.completions.create(model="m", messages=HI), 0.05)

    with recording.rollout() as context, pytest.raises(TimeoutError):
        asyncio.run(main())
    (call,) = recording.calls(context)
    assert not call.complete
    assert "CancelledError" in call.error
