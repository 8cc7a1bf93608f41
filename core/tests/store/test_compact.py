"""LLM calls come back as they were, however they were packed, and take little room."""

import random
import threading

import pytest
from agentlightning.errors import DamagedRecord, SchemaMismatch
from agentlightning.records import (
    AttemptKey,
    Choice,
    Floats,
    LLMCall,
    Span,
    Tokens,
    to_json,
    to_msgpack,
)
from agentlightning.store.compact import CallPacker, unpack
from agentlightning.testing.store.making import rich_span
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from msgspec.structs import replace

IDS = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1)), max_size=30)
TEXTS = st.sampled_from(
    ["", "yes", "The quick brown fox jumps over the lazy dog, said the model. " * 2]
)
TRICKY = st.sampled_from([0, 1, 1.0, True, False, None, -0.0, 0.0, "1", [], {}, {"a": 1}, {"a": 1.0}])


def message(role, content):
    return {"role": role, "content": content}


def call(ids=(), messages=(), **fields):
    """A call whose reply repeats in its response, as replies do."""
    choices = fields.pop("choices", (Choice(message=message("assistant", "ok")),))
    defaults = {
        "seq": 1,
        "api": "chat",
        "model": "small",
        "base_url": "http://127.0.0.1:1/v1",
        "request": {"model": "small", "messages": list(messages), "tools": [{"name": "search"}]},
        "response": {"id": "r", "choices": [{"index": c.index, "message": c.message} for c in choices]},
        "prompt_ids": None if ids is None else Tokens(ids),
        "choices": choices,
    }
    return LLMCall(**(defaults | fields))


def span(span_id, given, attempt=1):
    return Span(
        rollout_id="ro-1",
        attempt=attempt,
        span_id=span_id,
        trace_id="0" * 32,
        kind="llm",
        name="chat",
        start_ns=1,
        end_ns=2,
        call=given,
    )


def nothing(key):
    return []


def packed(calls, packer=None):
    """Rows of one transaction; the span ids are the places."""
    spans = [span(f"{place:016x}", item) for place, item in enumerate(calls)]
    packing = (packer or CallPacker()).begin(nothing)
    return [(item.span_id, row) for item, row in zip(spans, packing.pack(spans), strict=True)]


def assert_same(found, expected):
    """Equal, and also where Python's own idea of equal is looser than JSON's."""
    assert found == expected
    assert list(map(to_json, found)) == list(map(to_json, expected))


def conversation(turns, *, start, step, seed=0):
    """An agent's calls: each prompt goes on after the prompt and the reply before it."""
    rng = random.Random(seed)
    context = [rng.randrange(151_936) for _ in range(start)]
    messages = [message("system", "You are a helpful agent. " * 50)]
    calls = []
    for turn in range(turns):
        context += [rng.randrange(151_936) for _ in range(step - step // 3)]
        messages.append(message("user", " ".join(str(rng.random()) for _ in range(step // 4))))
        said = [rng.randrange(151_936) for _ in range(step // 3)]
        reply = message("assistant", " ".join(str(rng.random()) for _ in range(step // 8)))
        choice = Choice(
            message=reply, response_ids=Tokens(said), logprobs=Floats([-rng.random() for _ in said])
        )
        calls.append(call(context, messages, seq=turn + 1, choices=(choice,)))
        context += said
        messages.append(reply)
    return calls


# --- what comes back --------------------------------------------------------------------------


@given(ids=st.lists(IDS, min_size=1, max_size=6))
def test_ids_of_any_size_come_back(ids):
    calls = [
        call(item, choices=(Choice(response_ids=Tokens(item[::-1]), logprobs=Floats()),))
        for item in ids
    ]
    assert_same(unpack(packed(calls)), calls)


def test_a_call_with_every_field_set_comes_back():
    rich = rich_span(AttemptKey("ro-1", 1)).call
    again = replace(rich, seq=4, request={"messages": rich.request["messages"] * 2})
    assert_same(unpack(packed([rich, again, rich])), [rich, again, rich])


def test_ids_without_messages_and_messages_without_ids_come_back():
    calls = [
        call(None, [message("user", "hi")], choices=()),
        call([1, 2, 3], response=None, request={}),
        call([], request={"prompt": "a text that is longer than a word or two"}),
        call([1, 2, 3, 4], request={"prompt": "a text that is longer than a word or two, and goes on"}),
        call(None, request={"prompt": list(range(500))}),
        call(None, request={"prompt": [*range(500), 7]}),
    ]
    assert_same(unpack(packed(calls)), calls)


def test_values_that_python_takes_for_equal_are_kept_apart():
    values = [1, True, 1.0, 0, False, 0.0, -0.0]
    calls = [call(request={"n": value, "stop": [value]}, temperature=None) for value in values]
    assert_same(unpack(packed(calls)), calls)


def test_the_order_of_keys_comes_back():
    calls = [call(request={"a": 1, "b": 2}), call(request={"b": 2, "a": 1}), call(request={"b": 2})]
    found = unpack(packed(calls))
    assert [list(item.request) for item in found] == [["a", "b"], ["b", "a"], ["b"]]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_calls_that_arrive_in_another_order_come_back(order):
    calls = [conversation(3, start=50, step=20)[place] for place in order]
    assert_same(unpack(packed(calls)), calls)


def test_each_reply_of_several_can_be_continued():
    choices = tuple(
        Choice(index=n, response_ids=Tokens([10_000 * n + k for k in range(400)])) for n in range(3)
    )
    first = call(range(400), choices=choices)
    goes_on = [call([*range(400), *choice.response_ids, 7], seq=2) for choice in choices]
    rows = packed([first, *goes_on])
    assert_same(unpack(rows), [first, *goes_on])
    assert max(len(row) for _, row in rows[1:]) < 150


def test_calls_stored_as_plain_messagepack_are_read():
    calls = conversation(4, start=50, step=20)
    plain = [(f"{n:016x}", to_msgpack(item)) for n, item in enumerate(calls)]
    assert_same(unpack(plain), calls)
    packing = CallPacker().begin(lambda key: plain[:2])
    rest = packing.pack([span(f"{n:016x}", calls[n]) for n in (2, 3)])
    mixed = [*plain[:2], *zip(("2".zfill(16), "3".zfill(16)), rest, strict=True)]
    assert_same(unpack(mixed), calls)
    assert len(rest[1]) < len(plain[3][1]) / 2


def test_spans_without_a_call_are_none():
    packing = CallPacker().begin(nothing)
    rows = packing.pack([span("a", None), span("b", call([1])), span("c", None)])
    assert [row is None for row in rows] == [True, False, True]
    assert unpack(zip("abc", rows, strict=True)) == [None, call([1]), None]


def test_what_the_caller_changes_later_does_not_reach_the_next_call():
    messages = [message("user", "a question that is long enough to be shared by all calls")]
    first = call([1, 2], messages)
    packer = CallPacker()
    packing = packer.begin(nothing)
    rows = [("1", packing.pack([span("1", first)])[0])]
    expected = [call([1, 2], [dict(item) for item in messages])]
    first.request["messages"][0]["content"] = "changed"
    second = call([1, 2, 3], [*expected[0].request["messages"], message("user", "more")])
    rows.append(("2", packing.pack([span("2", second)])[0]))
    assert_same(unpack(rows), [*expected, second])


# --- how little it takes ----------------------------------------------------------------------


def test_ids_of_32_turns_up_to_8k_take_under_a_fortieth_of_their_json():
    """The calls' ids alone, and every byte that a row takes is counted."""
    calls = [
        call(item.prompt_ids, request={}, response=None, choices=(Choice(response_ids=reply),))
        for item in conversation(32, start=1024, step=224)
        for reply in [item.choices[0].response_ids]
    ]
    plain = sum(
        len(to_json([list(item.prompt_ids), list(item.choices[0].response_ids)])) for item in calls
    )
    rows = packed(calls)
    assert_same(unpack(rows), calls)
    assert len(calls[-1].prompt_ids) > 8000
    assert sum(len(row) for _, row in rows) < plain / 40


def test_whole_calls_of_32_turns_take_a_fraction_of_their_json():
    calls = conversation(32, start=1024, step=224)
    rows = packed(calls)
    assert_same(unpack(rows), calls)
    assert sum(len(row) for _, row in rows) < sum(len(to_json(item)) for item in calls) / 12


def test_sub_agents_that_take_turns_and_edited_histories_share_too():
    one, two = (conversation(16, start=1000, step=100, seed=seed) for seed in (1, 2))
    taking_turns = [item for pair in zip(one, two, strict=True) for item in pair]
    apart = sum(len(row) for calls in (one, two) for _, row in packed(calls))
    rows = packed(taking_turns)
    assert sum(len(row) for _, row in rows) < 1.1 * apart
    cut = call([*one[-1].prompt_ids[:1500], 1, 2, 3], one[-1].request["messages"][:9], choices=())
    edited = packed([*one, cut])
    assert len(edited[-1][1]) < 200
    assert_same(unpack(edited), [*one, cut])


# --- what must not be relied on ---------------------------------------------------------------


def test_a_rolled_back_call_is_never_referred_to():
    packer = CallPacker()
    lost, kept, last = conversation(3, start=100, step=50)
    packer.begin(nothing).pack([span("1", lost)])  # and never kept
    packing = packer.begin(nothing)
    row = packing.pack([span("2", kept)])[0]
    packing.keep()
    assert_same(unpack([("2", row)]), [kept])
    assert_same(
        unpack([("2", row), ("3", packer.begin(nothing).pack([span("3", last)])[0])])[1:], [last]
    )


def test_after_forgetting_only_what_is_stored_is_referred_to():
    packer = CallPacker()
    calls = conversation(3, start=100, step=50)
    under_way = packer.begin(nothing)
    under_way.pack([span("1", calls[0])])
    packer.forget()
    under_way.keep()
    (row,) = packer.begin(nothing).pack([span("2", calls[1])])
    assert_same(unpack([("2", row)]), [calls[1]])


def test_a_span_packed_twice_is_refused():
    packing = CallPacker().begin(nothing)
    packing.pack([span("1", call([1]))])
    with pytest.raises(ValueError, match="given twice"):
        packing.pack([span("1", call([2]))])


def test_other_content_under_a_referred_id_is_an_error_by_name_and_never_wrong_ids():
    calls = conversation(3, start=100, step=50)
    rows = packed(calls)
    foreign = packed(conversation(1, start=100, step=50, seed=9))
    with pytest.raises(DamagedRecord, match=rows[1][0]):
        unpack([*foreign, *rows[1:]])
    with pytest.raises(DamagedRecord, match=f"{rows[0][0]}, which is not there"):
        unpack(rows[1:])


@settings(max_examples=200)
@given(place=st.integers(0, 10_000), change=st.integers(1, 255))
def test_a_changed_byte_is_an_error_by_name_or_changes_nothing(place, change):
    """A byte of a name that is not read may change; what is read is right."""
    calls = conversation(3, start=40, step=20)
    rows = packed(calls)
    data = bytearray(rows[1][1])
    data[place % len(data)] ^= change
    try:
        found = unpack([rows[0], (rows[1][0], bytes(data)), rows[2]])
    except (DamagedRecord, SchemaMismatch):
        return
    assert_same(found, calls)


def test_a_row_of_a_later_version_says_what_to_do():
    (row,) = packed([call([1])])
    with pytest.raises(SchemaMismatch, match="pip install -U"):
        unpack([(row[0], row[1][:1] + b"\x63" + row[1][2:])])


# --- long attempts, many attempts, many threads -----------------------------------------------


def test_a_chain_of_a_thousand_calls_is_read_and_gone_on_with():
    calls = conversation(1000, start=10, step=9)
    rows = packed(calls[:-1])
    assert_same(unpack(rows), calls[:-1])
    packing = CallPacker().begin(lambda key: rows)
    (last,) = packing.pack([span("last", calls[-1])])
    assert len(last) < 1000
    assert_same(unpack([*rows, ("last", last)]), calls)


def test_what_is_remembered_has_a_bound_and_is_read_again():
    packer = CallPacker(memory=200_000)
    stored = {}
    calls = conversation(6, start=1000, step=50)

    def rows_of(key):
        return stored.get(key.number, [])

    for turn, item in enumerate(calls):
        for attempt in range(1, 41):
            packing = packer.begin(rows_of)
            (row,) = packing.pack([span(f"{turn:016x}", item, attempt)])
            stored.setdefault(attempt, []).append((f"{turn:016x}", row))
            packing.keep()
    assert 0 < packer._size <= 200_000
    for rows in stored.values():
        assert_same(unpack(rows), calls)
        assert len(rows[-1][1]) < 2000


def test_threads_may_pack_different_attempts_with_one_packer():
    packer = CallPacker(memory=500_000)
    calls = conversation(20, start=200, step=30)
    stored = {attempt: [] for attempt in range(1, 9)}

    def work(attempt):
        for turn, item in enumerate(calls):
            packing = packer.begin(lambda key: stored[key.number])
            (row,) = packing.pack([span(f"{turn:016x}", item, attempt)])
            stored[attempt].append((f"{turn:016x}", row))
            packing.keep()

    threads = [threading.Thread(target=work, args=(attempt,)) for attempt in stored]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rows in stored.values():
        assert_same(unpack(rows), calls)


class Attempt(RuleBasedStateMachine):
    """Several processes write to one attempt, in transactions that are committed or rolled back."""

    calls = Bundle("calls")
    transactions = Bundle("transactions")

    def __init__(self):
        super().__init__()
        self.packers = [CallPacker(), CallPacker(), CallPacker(memory=3000)]
        self.arrived = 0
        self.rows = {}  # committed: span id -> (place, row, call)

    def stored(self, key):
        return [(name, row) for name, (_, row, _) in sorted(self.rows.items(), key=lambda i: i[1][0])]

    @rule(target=calls, ids=IDS, texts=st.lists(TEXTS, max_size=3), value=TRICKY)
    def begin_a_conversation(self, ids, texts, value):
        return call(ids, [message("user", text) for text in texts], usage={"value": value})

    @rule(
        target=calls,
        before=calls,
        more=IDS,
        text=TEXTS,
        replies=st.lists(st.tuples(IDS, TEXTS), max_size=3),
        value=TRICKY,
    )
    def go_on(self, before, more, text, replies, value):
        choices = tuple(
            Choice(index=n, message=message("assistant", said), response_ids=Tokens(ids))
            for n, (ids, said) in enumerate(replies)
        )
        told = [*(before.prompt_ids or []), *more]
        answers = [choice.message for choice in before.choices]
        messages = [*before.request["messages"], *answers, message("user", text)]
        request = {**before.request, "messages": messages, "n": value}
        return replace(before, request=request, choices=choices, prompt_ids=Tokens(told))

    @rule(target=calls, before=calls, which=st.integers(0, 2), more=IDS)
    def continue_a_reply(self, before, which, more):
        replies = [choice.response_ids or [] for choice in before.choices] or [[]]
        told = [*(before.prompt_ids or []), *replies[which % len(replies)], *more]
        return replace(before, prompt_ids=Tokens(told), response=None)

    @rule(target=calls, before=calls, keep=st.integers(0, 40), more=IDS)
    def edit_the_history(self, before, keep, more):
        messages = [*before.request["messages"][: keep % 4], message("user", "shortened")]
        prompt = None if keep == 1 else Tokens([*(before.prompt_ids or [])[:keep], *more])
        return replace(before, prompt_ids=prompt, request={"messages": messages, "seed": keep})

    @rule(target=transactions, packer=st.integers(0, 2))
    def begin(self, packer):
        return self.packers[packer].begin(self.stored), {}

    @rule(
        transaction=transactions,
        given=st.lists(calls, min_size=1, max_size=4),
        number=st.integers(0, 5),
        plain=st.booleans(),
    )
    def insert(self, transaction, given, number, plain):
        """Ids are taken again after a rollback; those that are stored or under way are left out."""
        packing, inserted = transaction
        for place, item in enumerate(given):
            name = f"{number + place:016x}" if number < 4 else f"Ünï {number + place}"
            if name in self.rows or name in inserted:
                continue
            row = to_msgpack(item) if plain else packing.pack([span(name, item)])[0]
            self.arrived += 1
            inserted[name] = (self.arrived, row, item)

    @rule(transaction=consumes(transactions), is_kept=st.booleans())
    def end(self, transaction, is_kept):
        packing, inserted = transaction
        if is_kept and not inserted.keys() & self.rows.keys():  # else another was faster: a lock's work
            self.rows.update(inserted)
            packing.keep()

    @rule(packer=st.integers(0, 2))
    def lose_a_connection(self, packer):
        self.packers[packer].forget()

    @invariant()
    def reading_equals_writing(self):
        in_order = sorted(self.rows.items(), key=lambda item: item[1][0])
        found = unpack((name, row) for name, (_, row, _) in in_order)
        assert_same(found, [item for _, (_, _, item) in in_order])


TestAttempt = Attempt.TestCase
TestAttempt.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
