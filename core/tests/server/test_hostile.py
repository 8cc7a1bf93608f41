"""Ten thousand malformed or hostile requests: none is a server error, none changes anything."""

from __future__ import annotations

import gzip
import json
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from agentlightning.records import to_json
from agentlightning.store import Store
from agentlightning.store.http.operations import OPERATIONS, PREFIX
from agentlightning.testing.store.making import request, span

COUNT = 10_000
SEED = 20_240_601

ABOUT_NO_RUN = {"seconds_to_expiry", "stop_waiting"}  # a runner of any run may ask
JSON_FIELDS = {"config", "state"}  # of any type, or of any type within


class Bodies:
    """For each operation a body that the owner would be answered, and ways to spoil it."""

    def __init__(self, store: Store, run_id: str, claim) -> None:
        rollout_id = claim.key.rollout_id
        of_run, key = {"run_id": run_id}, list(claim.key)
        results = [{"key": key, "outcome": {"status": "succeeded"}}]
        self.good: dict[str, dict] = {
            "create_run": {"name": "x", "config": {}},
            "set_run_status": {**of_run, "status": "failed"},
            "set_endpoint": {**of_run, "url": "http://x"},
            "save_state": {**of_run, "state": {"a": 1}},
            "log_metrics": {**of_run, "step": 1, "values": {"a": 1.0}},
            "enqueue": {**of_run, "requests": [{"input": 1}]},
            "claim": {"worker_id": "w"},
            "stop_waiting": {"worker_id": "w"},
            "begin": {"run_name": "x", "request": {"input": 1}, "worker_id": "w"},
            "heartbeat": {"worker_id": "w", "attempts": [key]},
            "finish": {"results": results},
            "finish_and_claim": {"results": results, "worker_id": "w"},
            "set_rewards": {"rewards": {rollout_id: 1.0}},
            "cancel": {"rollout_ids": [rollout_id]},
            "attempts": {"rollout_id": rollout_id},
            "wait_over": {"rollout_ids": [rollout_id]},
            "check_token": {"rollout_id": rollout_id, "number": 1, "token": "x"},
            "add_spans": {"spans": [json.loads(to_json(span(claim.key, 5)))]},
            "spans": {"rollout_ids": [rollout_id]},
            "publish": {**of_run, "resources": {"a": {"type": "data", "value": 1}}},
            "resources": of_run,
            "import_rows": {"rows": []},
            **dict.fromkeys(("run", "load_state", "metrics", "export_rows"), of_run),
        }

    def of(self, name: str) -> bytes:
        return to_json(self.good.get(name, {}))

    def spoilt(self, dice: random.Random, name: str) -> bytes:
        """A body that no schema allows."""
        body = self.of(name)
        return dice.choice(
            [
                lambda: body[: dice.randrange(len(body))],
                lambda: body + dice.choice([b"x", b"{}", b",", b"\x00", b"\xff", b"]"]),
                lambda: _within(body, b'"unknown":1'),
                lambda: _within(body, b'"' + dice.randbytes(4).hex().encode() + b'":[]'),
                lambda: _within(body, b'"x":NaN'),
                lambda: _within(body, b'"x":1e999'),
                lambda: _within(body, b'"x":' + b"9" * dice.choice([20, 400, 5000])),
                lambda: _within(
                    body, b'"x":"' + dice.choice([rb"\ud800", rb"\udfff\ud800", rb"\uZZZZ"])
                ),
                lambda: _within(body, b'"x":"\xff\xfe\x80"'),
                lambda: _within(body, b'"x":' + b"[" * 100_000),
                lambda: _within(body, b'"x":' + b'{"a":' * 5000 + b"1" + b"}" * 5000),
                lambda: dice.choice(
                    [b"null", b"[]", b"1", b'"x"', b"true", b"[" * 9999, b"-", b"\xef\xbb\xbf{}"]
                ),
                lambda: dice.randbytes(dice.randrange(1, 200)).replace(b"{", b"["),
                lambda: body.decode().encode("utf-16"),
                lambda: self._of_wrong_type(dice, name),
            ]
        )()

    def _of_wrong_type(self, dice: random.Random, name: str) -> bytes:
        """A required field of a type that it cannot have."""
        good = {
            field: value for field, value in self.good.get(name, {}).items() if field not in JSON_FIELDS
        }
        if not good:
            return b'{"unknown":null}'
        field = dice.choice(sorted(good))
        wrong = dice.choice([[[]], [None], {"a": {"b": {"c": None}}}, 1.5, -(10**30), True, ["\x00"]])
        return to_json({**self.good[name], field: wrong})


def _within(body: bytes, more: bytes) -> bytes:
    """An object with one more member, whatever it is."""
    return body[:-1] + (b"," if len(body) > 2 else b"") + more + b"}"


class Kinds:
    """Every kind of hostile request."""

    def __init__(self, dice: random.Random, bodies: Bodies, owner: str, runner: str) -> None:
        self.dice = dice
        self.bodies = bodies
        self.owner = owner.encode()
        self.runner = runner.encode()
        self.names = [operation.name for operation in OPERATIONS]

    def all(self) -> list[Callable[[], bytes]]:
        return [
            self.spoilt_body, self.spoilt_body, self.spoilt_body, self.wrong_token, self.wrong_token,
            self.foreign_runner, self.odd_path, self.odd_method, self.wrong_type, self.bad_gzip, self.bad_head,
        ]  # fmt: skip

    def path(self) -> bytes:
        return f"{PREFIX}/{self.dice.choice(self.names)}".encode()

    def name_and_path(self) -> tuple[str, bytes]:
        name = self.dice.choice(self.names)
        return name, f"{PREFIX}/{name}".encode()

    def spoilt_body(self) -> bytes:
        name, path = self.name_and_path()
        return self.request(b"POST", path, self.owner, self.bodies.spoilt(self.dice, name))

    def wrong_token(self) -> bytes:
        """A body that is right, from somebody who may not ask."""
        name, path = self.name_and_path()
        token = self.dice.choice(
            [None, b"", b"x" * self.dice.randrange(1, 3000), self.owner[:-1], self.owner + b"0",
             self.owner.upper(), b"agl-owner-", b"agl-runner-../..-00", b"agl-" + b"f" * 64,
             bytes(self.dice.randrange(0x21, 0xFF) for _ in range(40))]
        )  # fmt: skip
        return self.request(b"POST", path, token, self.bodies.of(name))

    def foreign_runner(self) -> bytes:
        """A body that is right, from a runner of another run."""
        name = self.dice.choice([name for name in self.names if name not in ABOUT_NO_RUN])
        return self.request(b"POST", f"{PREFIX}/{name}".encode(), self.runner, self.bodies.of(name))

    def odd_path(self) -> bytes:
        name, path = self.name_and_path()
        dice = self.dice
        odd = dice.choice(
            [path + b"/", path + b"//", b"/" + path, path.upper(), path + b"%00", path + b"%2f..%2fruns",
             PREFIX.encode() + b"/../v1/" + name.encode(), PREFIX.encode() + b"/%2e%2e/" + name.encode(),
             PREFIX.encode(), PREFIX.encode() + b"/", b"/store/v2/" + name.encode(), b"/store/v1x/runs",
             PREFIX.encode() + b"/" + b"a" * 5000, PREFIX.encode() + b"/%ff%fe", b"/etc/passwd",
             PREFIX.encode() + b"/__class__", PREFIX.encode() + b"/" + b"../" * 50 + b"etc/passwd",
             b"/" + dice.randbytes(6).hex().encode(), path + b";x=1", b"/v1/trace", b"/docs", b"/.env"]
        )  # fmt: skip
        return self.request(b"POST", odd, self.owner, self.bodies.of(name))

    def odd_method(self) -> bytes:
        method = self.dice.choice(
            [b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"PROPFIND"]
        )
        name, path = self.name_and_path()
        return self.request(method, path, self.owner, self.bodies.of(name))

    def wrong_type(self) -> bytes:
        name, path = self.name_and_path()
        kind = self.dice.choice(
            [b"text/plain", b"", b"a/b", b"multipart/form-data; boundary=x", b"\xe4"]
        )
        return self.request(b"POST", path, self.owner, self.bodies.of(name), kind=kind)

    def bad_gzip(self) -> bytes:
        name, path = self.name_and_path()
        good = gzip.compress(self.bodies.of(name))
        body = self.dice.choice([good[:-3], b"", good + b"x", self.bodies.of(name), b"\x1f\x8b" + good])
        more = self.dice.choice([b"gzip", b"gzip", b"br", b"deflate"])
        if more != b"gzip":
            body = good
        return self.request(
            b"POST", path, self.owner, body, more=b"content-encoding: " + more + b"\r\n"
        )

    def bad_head(self) -> bytes:
        """What is no HTTP, or says another length than it has."""
        path, body = self.path(), b"{}"
        token = b"authorization: Bearer " + self.owner + b"\r\n"
        line = b"POST " + path + b" HTTP/1.1\r\nhost: x\r\n" + token
        return self.dice.choice(
            [line + b"content-length: -1\r\n\r\n" + body,
             line + b"content-length: many\r\n\r\n" + body,
             line + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n" + body,
             line + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
             line + b"content-length: 99999999999999999999\r\n\r\n",
             b"POST \xff\xfe HTTP/1.1\r\n\r\n",
             b"POST " + path + b" HTTP/9.9\r\n" + token + b"\r\n",
             b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
             b"GET http://other/ HTTP/1.1\r\nno colon\r\n\r\n",
             b"\r\n\r\n\x00\x00\x00\x00"]
        )  # fmt: skip

    def request(
        self, method: bytes, path: bytes, token: bytes | None, body: bytes,
        kind: bytes = b"application/json", more: bytes = b"",
    ) -> bytes:  # fmt: skip
        bearer = b"" if token is None else b"authorization: Bearer " + token + b"\r\n"
        return (
            method + b" " + path + b" HTTP/1.1\r\nhost: x\r\ncontent-type: " + kind + b"\r\n" + bearer
            + more + b"content-length: %d\r\n\r\n" % len(body) + body
        )  # fmt: skip


class Line:
    """A kept connection, opened anew only where the server ended it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self.opened = 0

    def status_of(self, sent: bytes) -> int:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=10)
            self._file = self._socket.makefile("rb")
            self.opened += 1
        try:
            self._socket.sendall(sent)
            return self._read()
        except (ConnectionError, EOFError):
            self.close()
            return 0

    def _read(self) -> int:
        first = self._file.readline()
        if not first:
            raise EOFError
        length, closing = 0, False
        while (line := self._file.readline().lower()) not in (b"\r\n", b""):
            length = int(line.split(b":")[1]) if line.startswith(b"content-length") else length
            closing |= line.startswith(b"connection: close")
        self._file.read(length)
        if closing:
            self.close()
        return int(first.split()[1])

    def close(self) -> None:
        if self._socket is not None:
            self._file.close()
            self._socket.close()
            self._socket = None


def contents(store: Store) -> list:
    """Everything there is."""
    rows = [row for run in store.runs() for row in store.export_rows(run.run_id)]
    return [rows, store.statistics(), [worker.worker_id for worker in store.workers()]]


@pytest.fixture
def line(served) -> Iterator[Line]:
    line = Line(served.client().address)
    yield line
    line.close()


def test_ten_thousand_hostile_requests_are_refused_and_change_nothing(served, line):
    store = served.store
    run_id, other = (store.create_run(name, {"kept": True}).run_id for name in "ab")
    store.enqueue(run_id, [request({"task": n}) for n in range(5)])
    (claim,) = store.claim(run_id, "worker")
    store.add_spans([span(claim.key)])
    dice = random.Random(SEED)
    kinds = Kinds(dice, Bodies(store, run_id, claim), served.owner, store.access_token("runner", other))
    before, statuses = contents(store), Counter()
    for number in range(COUNT):
        made = dice.choice(kinds.all())
        sent = made()
        status = line.status_of(sent)
        statuses[made.__name__, status] += 1
        assert 400 <= status < 500, (number, made.__name__, status, sent[:500])
    assert contents(store) == before
    assert {status for _, status in statuses} >= {400, 401, 404, 405, 415}
    assert line.opened < COUNT / 5, "connections were not kept"
    assert served.client().ok("runs")["runs"]  # and it still answers those who may ask
