"""What is too large, packed wrongly or of another type is refused, and the connection goes on."""

from __future__ import annotations

import gzip
import json
import socket

import pytest
from agentlightning.store.http import operations as ops
from agentlightning.store.memory import MemoryStore

LIMIT = 100_000
CREATE = ops.CREATE_RUN.path


@pytest.fixture
def small(serve):
    """A server that takes small requests only."""
    with MemoryStore() as store:
        yield serve(store, body_bytes=LIMIT)


def run_of(size: int) -> bytes:
    """The body of a request that makes a run, of so many bytes."""
    body = b'{"name":"","config":{}}'
    return body.replace(b'""', b'"' + b"x" * (size - len(body)) + b'"')


def head(served, length: int | None, *more: str) -> bytes:
    lines = [
        f"POST {CREATE} HTTP/1.1",
        "host: test",
        "content-type: application/json",
        f"authorization: Bearer {served.owner}",
        *more,
    ]
    lines += [] if length is None else [f"content-length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def reply_of(connection: socket.socket) -> bytes:
    """One whole reply, as it comes."""
    data = b""
    while part := connection.recv(65536):
        data += part
        headers, end, body = data.partition(b"\r\n\r\n")
        length = headers.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if end and len(body) >= int(length):
            break
    return data


def test_a_body_of_the_limit_is_taken_and_a_larger_one_says_the_limit(small):
    client = small.client()
    assert client.send(CREATE, run_of(LIMIT))[0] == 200
    status, reply, _ = client.send(CREATE, run_of(LIMIT + 1))
    refusal = json.loads(reply)
    assert (status, refusal["error"]) == (413, "LimitExceeded")
    assert str(LIMIT) in refusal["message"]
    assert "--max-body-mb" in refusal["message"]
    assert client.send(CREATE, b'{"name":"b","config":{}}')[0] == 200  # on the same connection
    assert len(small.store.runs()) == 2


def test_a_client_that_declares_too_much_and_sends_it_all_gets_the_refusal(small):
    client = small.client()
    for _ in range(3):
        status, reply, _ = client.send(CREATE, run_of(50 * LIMIT))
        assert (status, json.loads(reply)["error"]) == (413, "LimitExceeded")


def test_a_body_in_pieces_of_unknown_length_is_counted(small):
    with socket.create_connection(small.client().address) as connection:
        connection.settimeout(10)
        connection.sendall(head(small, None, "transfer-encoding: chunked"))
        piece = b"%x\r\n%s\r\n" % (10_000, b" " * 10_000)
        for _ in range(12):
            connection.sendall(piece)
        connection.sendall(b"0\r\n\r\n")
        assert b" 413 " in reply_of(connection)
        connection.sendall(head(small, 24) + b'{"name":"b","config":{}}')
        assert b" 200 " in reply_of(connection)


def test_who_asks_before_sending_is_told_without_sending(small):
    with socket.create_connection(small.client().address) as connection:
        connection.settimeout(10)
        connection.sendall(head(small, 10**12, "expect: 100-continue"))
        assert b" 413 " in reply_of(connection)


def test_a_gzip_body_is_unpacked(small):
    packed = gzip.compress(run_of(LIMIT // 2))
    assert len(packed) < LIMIT / 50
    client = small.client()
    assert client.send(CREATE, packed, content_encoding="gzip")[0] == 200
    parts = [gzip.compress(part) for part in (b'{"name":"two ', b'members","config":{}}')]
    assert client.send(CREATE, b"".join(parts), content_encoding="GZIP")[0] == 200
    assert small.store.runs()[1].name == "two members"


def test_a_bomb_is_refused_before_it_is_unpacked(small):
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < LIMIT
    status, reply, _ = small.client().send(CREATE, bomb, content_encoding="gzip")
    assert (status, json.loads(reply)["error"]) == (413, "LimitExceeded")
    assert b"unpacked" in reply


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        gzip.compress(b"{}")[:-1],
        gzip.compress(b"{}")[:5],
        gzip.compress(b'{"name":"a","config":{}}') + b"rest",
        b"\x1f\x8b\x08\x00" + b"\xff" * 100,
        gzip.compress(b"") * 101,
    ],
    ids=["empty", "json", "cut", "head only", "more after it", "damaged", "empty members"],
)
def test_what_is_no_gzip_is_a_bad_request(small, body):
    status, reply, _ = small.client().send(CREATE, body, content_encoding="gzip")
    assert (status, json.loads(reply)["error"]) == (400, "BadValue")
    assert small.store.runs() == []


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "application/msgpack"},
        {"content_type": "application/jsonx"},
        {"content_type": ""},
        {"content_type": None},
        {"content_encoding": "br"},
        {"content_encoding": "gzip, gzip"},
    ],
)
def test_other_types_are_refused_and_the_right_one_named(small, headers):
    status, reply, _ = small.client().send(CREATE, b'{"name":"a","config":{}}', **headers)
    assert status == 415
    assert b"application/json" in reply or b"gzip" in reply
    assert small.store.runs() == []


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/json;"]
)
def test_the_type_may_be_written_as_http_allows(small, kind):
    assert small.client().send(CREATE, b'{"name":"a","config":{}}', content_type=kind)[0] == 200


def test_a_client_that_leaves_in_the_middle_changes_nothing(small):
    for body in (b"", b'{"name":"a"', b'{"name":"a","config":{}}'):
        with socket.create_connection(small.client().address) as connection:
            connection.sendall(head(small, 1000) + body)
    assert small.client().ok(ops.RUNS)["runs"] == []
