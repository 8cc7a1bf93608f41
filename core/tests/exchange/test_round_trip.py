"""A run written to a file and read back: nothing is lost, whatever the format and the stores."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from agentlightning.errors import ExchangeError, KeyReused, UnknownRun
from agentlightning.exchange import EXPORTS, IMPORTS, export_format, import_format
from agentlightning.records import Choice, Floats, LLMCall, Tokens
from agentlightning.store import RolloutQuery
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import Clock, claimed, request, span
from agentlightning.testing.store.moving import fill, picture
from agentlightning_sqlite.store import SqliteStore
from pyarrow import parquet

NAMES = ["run.jsonl", "run.jsonl.gz", "run.parquet"]


def untold(done, total):
    """A progress bar that nobody sees."""


def export(store, run_id, path, told=untold):
    return EXPORTS[export_format(None, path)].write(store, run_id, path, told)


def read(store, path, told=untold):
    return IMPORTS[import_format(path)].read(store, path, told)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def source(clock):
    with MemoryStore(clock=clock) as store:
        yield store


@pytest.fixture
def run_id(source, clock):
    return fill(source, clock)


@pytest.fixture
def target(tmp_path, clock):
    with SqliteStore(f"sqlite:///{tmp_path}/target.db", clock=clock) as store:
        yield store


# --- whole files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_run_comes_out_of_a_file_as_it_went_in(name, source, run_id, target, tmp_path):
    exported = export(source, run_id, tmp_path / name)
    imported = read(target, tmp_path / name)
    assert picture(target, run_id) == picture(source, run_id)
    assert imported.rows == exported.rows
    assert imported.new == exported.rows.total()
    assert imported.runs == [run_id]
    assert exported.size > 0
    assert read(target, tmp_path / name).new == 0


@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_log_probabilities_keep_every_bit(name, source, target, tmp_path):
    run_id = source.create_run("exact", {}).run_id
    key = claimed(source, run_id).key
    logprobs = Floats([-1e-45, -0.0, 0.1, -0.1, 3.4028235e38, -3.4028235e38])
    choices = [
        (),
        (Choice(), Choice(index=1, response_ids=Tokens(), logprobs=Floats())),
        (Choice(response_ids=Tokens([0, 2**32 - 1]), logprobs=logprobs, finish_reason="stop"),),
    ]
    calls = [
        LLMCall(
            seq=number,
            api="chat",
            model="m",
            base_url="",
            request={},
            choices=given,
            prompt_ids=Tokens(range(number * 1000)) if number else None,
        )
        for number, given in enumerate(choices)
    ]
    calls.insert(1, None)
    source.add_spans([span(key, number, call=call) for number, call in enumerate(calls)])
    export(source, run_id, tmp_path / name)
    read(target, tmp_path / name)
    found = [item.call for item in target.spans([key.rollout_id])]
    assert found[:3] == calls[:3]
    (choice,) = found[3].choices
    assert choice.response_ids == Tokens([0, 2**32 - 1])
    assert choice.logprobs.to_bytes() == logprobs.to_bytes()
    assert found[3].prompt_ids == Tokens(range(2000))


@pytest.mark.parametrize("name", NAMES)
def test_many_batches_and_row_groups_keep_their_order(name, source, target, tmp_path):
    run_id = source.create_run("many", {}).run_id
    source.enqueue(run_id, [request({"n": n}, max_attempts=2) for n in range(1300)], key="all")
    for claim in source.claim(run_id, "worker", limit=700):
        source.add_spans([span(claim.key, number) for number in range(20, 0, -1)])
    told = []
    export(source, run_id, tmp_path / name, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] == 1 + 1300 + 700 + 14000 + 1
    told.clear()
    read(target, tmp_path / name, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert [row.record for row in target.export_rows(run_id) if not hasattr(row.record, "index")] == [
        row.record for row in source.export_rows(run_id) if not hasattr(row.record, "index")
    ]
    names = [item.rollout_id for item in source.rollouts(RolloutQuery(limit=700)).items]
    assert [item.span_id for item in target.spans(names)] == [
        item.span_id for item in source.spans(names)
    ]


@pytest.mark.parametrize(
    ("name", "few", "many"),
    [("run.jsonl", 100, 500), pytest.param("run.parquet", 700, 2000, marks=pytest.mark.slow)],
)
def test_more_rows_take_no_more_memory(name, few, many, tmp_path):
    def peak(rollouts):
        with (
            SqliteStore(f"sqlite:///{tmp_path}/{rollouts}.db") as source,
            SqliteStore(f"sqlite:///{tmp_path}/{rollouts}-target.db") as target,
        ):
            run_id = source.create_run("large", {}).run_id
            source.enqueue(run_id, [request(n) for n in range(rollouts)])
            for claim in source.claim(run_id, "worker", limit=rollouts):
                spans = [span(claim.key, n, attributes={"text": "x" * 1000}) for n in range(20)]
                source.add_spans(spans)
            path = tmp_path / str(rollouts) / name
            path.parent.mkdir()
            tracemalloc.start()
            export(source, run_id, path)
            read(target, path)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert target.statistics(run_id).spans == rollouts * 20
            return most

    peak(10)  # what is imported on the way is not counted
    assert peak(many) < 1.6 * peak(few)


def test_parquet_has_columns_to_query(source, run_id, tmp_path):
    export(source, run_id, tmp_path / "run.parquet")
    rollouts = parquet.read_table(tmp_path / "run.parquet" / "rollouts.parquet").to_pylist()
    assert {item["status"] for item in rollouts} == {
        "queued",
        "running",
        "failed",
        "succeeded",
        "cancelled",
    }
    assert json.loads(next(i["input"] for i in rollouts if i["status"] == "succeeded")) == "to succeed"
    spans = parquet.read_table(tmp_path / "run.parquet" / "spans.parquet").to_pylist()
    (called,) = [item for item in spans if item["call_model"]]
    assert called["call_prompt_ids"] == [0, 1, 151_643, 2**32 - 1]
    assert called["call_choices"][0]["logprobs"] == [-0.25, -1.5]
    metrics = parquet.read_table(tmp_path / "run.parquet" / "metrics.parquet").to_pylist()
    assert {(item["step"], item["name"], item["value"]) for item in metrics} >= {(1, "loss", 2.0)}


def test_two_files_written_one_after_the_other_are_read_as_one(source, run_id, target, tmp_path):
    other = source.create_run("second", {}).run_id
    export(source, run_id, tmp_path / "one.jsonl")
    export(source, other, tmp_path / "two.jsonl")
    both = tmp_path / "both.jsonl"
    both.write_bytes((tmp_path / "one.jsonl").read_bytes() + (tmp_path / "two.jsonl").read_bytes())
    assert read(target, both).runs == [run_id, other]


# --- what is not whole, or not ours -----------------------------------------------------------


def test_a_file_that_was_cut_short_is_told_by_its_line_and_completed_later(
    source, run_id, target, tmp_path
):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    export(source, run_id, whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    for kept, message in (
        (lines[:-1], f"ends after line {len(lines) - 1} without an end line"),
        ([*lines[:9], lines[9][:20]], r"line 10 is no row .*cut short"),
        (lines[:1], "ends after line 1"),
        ([*lines[:5], *lines[6:]], "rows were written and"),
    ):
        cut.write_bytes(b"".join(kept))
        with pytest.raises(ExchangeError, match=message):
            read(target, cut)
    read(target, whole)
    assert picture(target, run_id) == picture(source, run_id)


def test_a_packed_file_that_was_cut_short_is_told(source, run_id, target, tmp_path):
    path = tmp_path / "run.jsonl.gz"
    export(source, run_id, path)
    assert gzip.decompress(path.read_bytes()).startswith(b'{"kind":"header"')
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ExchangeError, match="cannot be read after line"):
        read(target, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("prompt,answer\n1,2\n", "line 1 is no header"),
        ('{"prompt": "a task"}\n', "line 1 is no header"),
        ('{"kind":"header","format":"agentlightning rows","version":2,"run_id":"r"}\n', "version 2"),
        ('{"kind":"header","format":"other","version":1,"run_id":"r"}\n', "'other'"),
    ],
)
def test_what_is_no_export_is_refused(text, message, target, tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text(text)
    with pytest.raises(ExchangeError, match=message):
        read(target, path)
    assert target.runs() == []


def test_a_folder_that_is_not_whole_is_refused(source, run_id, target, tmp_path):
    folder = tmp_path / "run.parquet"
    export(source, run_id, folder)
    spans = (folder / "spans.parquet").read_bytes()
    (folder / "spans.parquet").write_bytes(spans[:-100])
    with pytest.raises(ExchangeError, match=r"spans\.parquet is damaged"):
        read(target, folder)
    (folder / "spans.parquet").unlink()
    with pytest.raises(ExchangeError, match=r"no .*spans\.parquet"):
        read(target, folder)
    table = parquet.read_table(folder / "runs.parquet")
    parquet.write_table(table, folder / "spans.parquet")
    with pytest.raises(ExchangeError, match=r"spans\.parquet row 1 cannot be read|spans\.parquet"):
        read(target, folder)
    parquet.write_table(table.replace_schema_metadata({}), folder / "runs.parquet")
    with pytest.raises(ExchangeError, match=r"runs\.parquet is no export"):
        read(target, folder)
    assert target.runs() == []


def test_rows_that_are_there_with_other_content_are_told_by_their_lines(
    source, run_id, target, tmp_path
):
    path = tmp_path / "run.jsonl"
    export(source, run_id, path)
    read(target, path)
    (first, *_) = target.rollouts(RolloutQuery(run_id=run_id)).items
    target.set_rewards({first.rollout_id: 7.0})
    with pytest.raises(KeyReused, match=r"run\.jsonl, line 2 to line .* another reward"):
        read(target, path)
    assert target.rollouts(RolloutQuery(run_id=run_id)).items[0].reward == 7.0


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_written_leaves_nothing(name, source, run_id, tmp_path):
    with pytest.raises(UnknownRun):
        export(source, "run-nobody-made", tmp_path / name)
    with pytest.raises(ExchangeError, match="cannot write"):
        export(source, run_id, tmp_path / "no folder" / name)

    def full(done, total):
        if done == 5:
            raise OSError(28, "No space left on device")

    with pytest.raises(ExchangeError, match="No space left"):
        export(source, run_id, tmp_path / name, full)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).write_text("precious")
    with pytest.raises(ExchangeError, match="exists already"):
        export(source, run_id, tmp_path / name)
    assert (tmp_path / name).read_text() == "precious"


def test_a_path_with_nothing_at_it_is_refused(tmp_path):
    with pytest.raises(ExchangeError, match="no file or folder"):
        import_format(tmp_path / "nowhere.jsonl")
