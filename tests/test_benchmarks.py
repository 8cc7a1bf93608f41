"""The benchmarks run, and print what is promised; how fast anything is, is no test."""

import json
import subprocess
import sys


def measure(root, *options):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.store", "--quick", *options],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_a_case_prints_one_json_object_a_line_and_judges_it_apart(root):
    done = measure(root, "--case", "sqlite")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {tuple(line) for line in lines} == {("bench", "case", "tool", "metric", "value", "unit")}
    assert {(line["bench"], line["case"], line["tool"]) for line in lines} == {
        ("store", "sqlite", "agentlightning")
    }
    metrics = {line["metric"]: line["value"] for line in lines}
    assert len(metrics) == len(lines)
    named = {"add_spans_per_s", "claims_per_s", "claim_finish_pairs_per_s", "read_1000_of_20k_ms"}
    assert all(metrics[name] > 0 for name in named)
    assert "verdict" in done.stderr


def test_a_case_that_is_not_there_is_refused_by_name(root):
    done = measure(root, "--case", "mongo")
    assert done.returncode == 2
    assert "http_sqlite" in done.stderr
