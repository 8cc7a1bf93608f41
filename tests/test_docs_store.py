"""What docs/store.md says of the store is what the code has: states, defaults, rights, names, numbers."""

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest
from agentlightning import errors, records, semconv, store
from agentlightning.cli.run_command import run
from agentlightning.cli.store_command import serve
from agentlightning.records import (
    ROLLOUT_OVER,
    Attempt,
    AttemptStatus,
    Outcome,
    OutcomeStatus,
    Rollout,
    RolloutConfig,
    RolloutRequest,
    RolloutStatus,
)
from agentlightning.runner import heart
from agentlightning.server.store_api import traces
from agentlightning.server.store_api.limits import Limits
from agentlightning.store import RolloutQuery, states
from agentlightning.store.http import transport
from agentlightning.store.http.operations import MAX_PAGE, OPERATIONS
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store import Clock
from agentlightning_sqlite.connection import BUSY_S

STORE = (Path(__file__).resolve().parents[1] / "docs" / "store.md").read_text(encoding="utf-8")
WITHOUT_CODE = re.sub(r"^```.*?^```$", "", STORE, flags=re.MULTILINE | re.DOTALL)


def default_of(command, option):
    """What an option of a command is without it."""
    (found,) = [param for param in command.params if param.name == option]
    return found.default


def blocks(text, language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(title):
    """What stands under a heading, up to the next one of its level."""
    _, _, rest = STORE.partition(f"\n## {title}\n")
    assert rest, f"there is no section {title!r}"
    return rest.partition("\n## ")[0]


def words(text):
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


# --- the state diagrams -----------------------------------------------------------------------

CONFIGS = [RolloutConfig(max_attempts=tries, max_lost=lost) for tries in (1, 2) for lost in (0, 1)]


def rollout(status, config):
    attempt = 0 if status == "queued" else 1
    return Rollout(
        rollout_id="r", run_id="run", input=None, mode="train", status=status, created_at=0.0,
        config=config, attempt=attempt,
    )  # fmt: skip


def attempt(status):
    return Attempt(
        rollout_id="r", number=1, status=status, worker_id="w", started_at=0.0, lease_until=1.0
    )


def steps():
    """Each change the state machine makes: the rollout and the attempt, before and after."""
    for config, status in itertools.product(CONFIGS, get_args(RolloutStatus)):
        before = rollout(status, config)
        yield before, None, states.cancel(before, 2.0), None
        if status == "queued":
            started = states.start(before, "w", 0.0, resources_version=0)
            yield before, None, started.rollout, started.attempt
        for of_attempt in get_args(AttemptStatus) if before.attempt else ():
            running = attempt(of_attempt)
            for change in changes(before, running):
                if change is not None:
                    yield before, running, change.rollout, change.attempt


def changes(before, running):
    yield states.expire(before, [running], 2.0)
    for status in get_args(OutcomeStatus):
        try:
            yield states.finish(before, [running], 1, Outcome(status=status), 2.0)
        except errors.StaleAttempt:
            continue


def transitions(pairs):
    return {(a.status, b.status) for a, b in pairs if a is not None and a.status != b.status}


def drawn(number):
    """The arrows of a diagram, between states and from and to none."""
    diagram = blocks(STORE, "mermaid")[number]
    arrows = re.findall(r"^ +(\S+) --> (\w+|\[\*\])", diagram, re.MULTILINE)
    inner = {(a, b) for a, b in arrows if "[*]" not in (a, b)}
    return inner, {b for a, b in arrows if a == "[*]"}, {a for a, b in arrows if b == "[*]"}


def test_the_diagram_of_a_rollout_has_the_arrows_of_the_state_machine():
    arrows, first, last = drawn(0)
    assert arrows == transitions((before, after) for before, _, after, _ in steps())
    assert (first, last) == ({"queued"}, set(ROLLOUT_OVER))
    assert {name for arrow in arrows for name in arrow} == set(get_args(RolloutStatus))


def test_the_diagram_of_an_attempt_has_the_arrows_of_the_state_machine():
    arrows, first, last = drawn(1)
    assert arrows == transitions((before, after) for _, before, _, after in steps())
    assert (first, last) == ({"running"}, set(get_args(AttemptStatus)) - {"running"})
    assert {name for arrow in arrows for name in arrow} == set(get_args(AttemptStatus))


def test_the_diagram_in_plain_text_is_that_of_the_state_machine():
    (text,) = blocks(section("The life of a rollout"), "text")
    assert text.strip() in states.__doc__.replace("\n    ", "\n").strip()
    of_rollout, _, of_attempt = text.partition("\nattempt ")
    assert all(status in of_rollout for status in get_args(RolloutStatus))
    assert all(status in of_attempt for status in set(get_args(AttemptStatus)) - {"lost"})


# --- the example ------------------------------------------------------------------------------


class Example:
    """The story of the table, told again in a store whose clock is turned."""

    def __init__(self, played, clock):
        self.store, self.clock = played, clock
        self.run_id = played.create_run("example", {}).run_id
        request = RolloutRequest(input="task", config=RolloutConfig(max_attempts=2, lease_s=60))
        self.acts = [
            lambda: played.enqueue(self.run_id, [request]),
            lambda: played.claim(self.run_id, "A"),
            self.beat,
            lambda: None,
            lambda: None,
            lambda: played.claim(self.run_id, "B"),
            lambda: self.finish("failed"),
            lambda: played.claim(self.run_id, "B"),
            lambda: self.finish("succeeded"),
        ]

    @property
    def rollout(self):
        return self.store.rollouts(RolloutQuery()).items[0]

    def beat(self):
        for second in range(3, 20, 2):
            self.clock.now = float(second)
            self.store.heartbeat("A", [self.rollout.key])

    def finish(self, status):
        self.store.finish([store.Result(key=self.rollout.key, outcome=Outcome(status=status))])


def test_the_example_goes_as_it_is_told():
    table = re.findall(r"^\| (\d+) s.*? \| .*? \| (.*?) \| ?(.*?) ?\|$", STORE, re.MULTILINE)
    clock = Clock(0.0)
    with MemoryStore(clock=clock) as played:
        example = Example(played, clock)
        for (second, status, attempts), act in zip(table, example.acts, strict=True):
            clock.now = float(second)
            act()
            assert words(status) == [example.rollout.status]
            statuses = [item.status for item in played.attempts(example.rollout.rollout_id)]
            assert words(attempts) == statuses


# --- names and numbers ------------------------------------------------------------------------


def test_the_defaults_of_the_limits_are_those_of_the_code():
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \|", section("Leases, heartbeats and retries"), re.MULTILINE
    )
    told = {name: default for name, default in rows if name in RolloutConfig.__struct_fields__}
    config = RolloutConfig()
    assert told == {
        "max_attempts": str(config.max_attempts),
        "retry_on": ", ".join(f"`{status}`" for status in config.retry_on),
        "max_lost": str(config.max_lost),
        "lease_s": f"{config.lease_s:g}",
        "timeout_s": "none",
    }
    assert config.timeout_s is None


@pytest.mark.parametrize(
    "told",
    [
        f"at least every {heart._LONGEST_PAUSE_S:g} seconds",
        f"for {transport.RETRY_S:g} seconds; then the call raises",
        f"for {default_of(run, 'patience'):g} seconds (`agl run --patience N`)",
        f"{default_of(run, 'patience'):g} seconds unless",
        f"for more than {BUSY_S:g} seconds",
        f"requests of up to {Limits().body_bytes // 2**20} MB",
        f"a single span of more than {default_of(serve, 'max_body_mb')} MB",
        f"up to {RolloutQuery().limit:,} rollouts",
        f"{MAX_PAGE:,} at most in one reply",
        f"up to {Limits().page_bytes // 2**20} MB a page",
    ],
)
def test_a_number_is_that_of_the_code(told):
    assert told in STORE.replace("\n  ", " ").replace("\n", " ")


def test_spans_of_opentelemetry_are_sent_where_and_as_is_said():
    (example,) = blocks(section("Agents in other languages"), "bash")
    assert f":4747{traces.PATH}\n" in example
    assert f"{semconv.ROLLOUT_ID}=ro-…,{semconv.ATTEMPT}=1" in example


def test_every_name_of_a_class_is_one():
    names = {word for word in words(WITHOUT_CODE) if re.fullmatch(r"[A-Z][a-z]+[A-Za-z]*", word)}
    assert names
    for name in names:
        assert any(hasattr(module, name) for module in (errors, records, store)), name


def test_a_runner_may_do_what_is_said_and_nothing_else():
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section("Tokens, and who may do what"), re.MULTILINE)
    told = {who: set(words(what)) for who, what in rows}
    needed = {"runner": "the runner's token", "attempts": "and the token of each attempt it is about"}
    for who, title in needed.items():
        assert told[title] == {operation.name for operation in OPERATIONS if operation.who == who}
