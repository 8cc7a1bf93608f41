import pytest
import torch
from agentlightning_rl.batch import make_blocks, token_weights


def test_a_block_pads_prompts_on_the_left_and_responses_on_the_right(rows):
    long = rows("a", [1, 2, 3], [4, 5], logprobs=[-0.25, -0.5])
    short = rows("b", [6], [7, 8, 9], mask=[1, 0, 1], logprobs=[-1.0, 0.0, -2.0])
    [block] = make_blocks([long, short], {"a": 2.0, "b": -1.0}, pad_id=99, block_tokens=100)

    first, second = (1, 0) if block["advantages"][0] == -1.0 else (0, 1)
    assert block["prompt_ids"][second].tolist() == [99, 99, 6]
    assert block["prompt_mask"][second].tolist() == [0, 0, 1]
    assert block["completion_ids"][first].tolist() == [4, 5, 99]
    assert block["completion_mask"][first].tolist() == [1, 1, 0]
    assert block["tool_mask"][first].tolist() == [0.5, 0.5, 0.0]
    assert block["tool_mask"][second].tolist() == [0.5, 0.0, 0.5]
    assert block["old_per_token_logps"][second].tolist() == [-1.0, 0.0, -2.0]
    assert block["advantages"].tolist() == [[2.0, -1.0][i] for i in (first, second)]
    assert block["num_items_in_batch"] == 2


def test_a_rollout_weighs_the_same_however_many_rows_it_has(rows):
    made = [
        rows("one", [1], [2] * 4),
        rows("three", [1], [2], weight=0.25),
        rows("three", [1], [2] * 5, mask=[1, 1, 0, 0, 1], weight=0.25),
        rows("three", [1], [2] * 2, weight=0.5),
    ]
    weights, total = token_weights(made)
    of_row = [weight * sum(row.mask) for weight, row in zip(weights, made, strict=True)]
    assert of_row[0] == pytest.approx(sum(of_row[1:])) == pytest.approx(total / 2)
    assert min(of_row) == pytest.approx(1.0)  # less would be clamped by TRL


@pytest.mark.parametrize("block_tokens", [1, 30, 64, 10_000])
def test_no_row_is_dropped_or_repeated_and_blocks_stay_within_the_budget(rows, block_tokens):
    made = [
        rows(f"r{n % 5}", list(range(1, 2 + n % 7)), list(range(100 + n, 103 + n + n % 4)), weight=0.25)
        for n in range(13)
    ]
    advantages = {f"r{n}": float(n) for n in range(5)}
    blocks = make_blocks(made, advantages, pad_id=0, block_tokens=block_tokens)

    found = []
    for block in blocks:
        size = block["prompt_ids"].shape[1] + block["completion_ids"].shape[1]
        assert len(block["prompt_ids"]) == 1 or len(block["prompt_ids"]) * size <= block_tokens
        for prompt, prompt_mask, ids, mask in zip(
            *(
                block[name]
                for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
            ),
            strict=True,
        ):
            found.append((prompt[prompt_mask.bool()].tolist(), ids[mask.bool()].tolist()))
    expected = [(list(row.prompt_ids), list(row.response_ids)) for row in made]
    assert sorted(found) == sorted(expected)
    assert sum(block["tool_mask"].sum() for block in blocks) == pytest.approx(
        blocks[0]["num_items_in_batch"].item()
    )


def test_a_row_without_logprobs_is_refused(rows):
    import msgspec

    made = [msgspec.structs.replace(rows("a", [1], [2]), logprobs=None)]
    with pytest.raises(ValueError, match="rollout a has no log-probabilities"):
        make_blocks(made, {"a": 1.0}, pad_id=0, block_tokens=10)


def test_tensors_have_the_types_the_loss_needs(rows):
    [block] = make_blocks([rows("a", [1], [2])], {"a": 1.0}, pad_id=0, block_tokens=10)
    assert block["prompt_ids"].dtype == block["completion_ids"].dtype == torch.long
    assert block["tool_mask"].dtype == block["advantages"].dtype == torch.float32
