"""The loss and its gradient: equal to TRL's own trainer, and to a plain loop over rows."""

import random

import pytest
import torch
from agentlightning.samples import Fidelity
from agentlightning_rl.advantages import advantages
from agentlightning_rl.arguments import trainer_arguments
from agentlightning_rl.batch import make_blocks
from agentlightning_rl.collect import Collected
from agentlightning_rl.config import RLConfig
from agentlightning_rl.model import load_model
from agentlightning_rl.trainer import RowTrainer
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

ATOL = 1e-6
REWARDS = [0.0, 1.0, 0.5, 0.25, 1.0, 0.0, 0.0, 1.0]


class Gradients(TrainerCallback):
    """Keeps the gradients of the first update and its loss."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
        self.values = {name: p.grad.clone() for name, p in trained}

    def on_log(self, args, state, control, logs=None, **_):
        self.logs = getattr(self, "logs", {}) | logs


@pytest.fixture
def model(tiny_model):
    return load_model(str(tiny_model), lora=None, seed=0)


def random_rows(make_row, count, *, seed=0, rollouts=None):
    """Rows of ragged lengths; some tokens within a response were not sampled."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        response = [rng.randrange(1, 250) for _ in range(rng.randrange(3, 12))]
        mask = [1, *(rng.randrange(2) for _ in response[1:])]
        made.append(
            make_row(
                rollouts[number] if rollouts else f"r{number}",
                [rng.randrange(1, 250) for _ in range(rng.randrange(2, 9))],
                response,
                mask=mask,
                logprobs=[rng.uniform(-6.5, -4.5) for _ in response],
            )
        )
    return made


def logps_of(module, row):
    """Log-probabilities of a row's response: one row, no padding."""
    ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
    logps = module(input_ids=ids).logits.log_softmax(-1)[0, :-1]
    return logps.gather(1, ids[0, 1:, None]).squeeze(1)[len(row.prompt_ids) - 1 :]


def with_own_logprobs(module, make_row, made):
    """The same rows as if the module had sampled them."""
    with torch.no_grad():
        return [
            make_row(
                row.rollout_id,
                list(row.prompt_ids),
                list(row.response_ids),
                mask=list(row.mask),
                logprobs=logps_of(module, row).tolist(),
                weight=row.weight,
            )
            for row in made
        ]


def our_trainer(model, rows, of_rollout, directory, *, block_tokens=64, **keys):
    config = RLConfig(max_grad_norm=1e9, **{"learning_rate": 1e-9, **keys})
    kept = Gradients()
    numbers = {"train/reward": 0.0}
    trainer = RowTrainer(
        model,
        lambda step: Collected(rows, of_rollout, Fidelity(), numbers),
        trainer_arguments(config, directory=directory, steps=1, seed=0),
        block_tokens=block_tokens,
        callbacks=[kept],
    )
    return trainer, kept


def trl_arguments(directory, **keys):
    return GRPOConfig(
        output_dir=str(directory),
        max_steps=1,
        learning_rate=1e-9,
        max_grad_norm=1e9,
        per_device_train_batch_size=8,
        num_generations=4,
        loss_type="grpo",
        bf16=False,
        gradient_checkpointing=False,
        disable_dropout=True,
        shuffle_dataset=False,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        **keys,
    )


def trl_trainer(model, directory, made, kept, **keys):
    """TRL's own trainer, given the rows through its rollout function."""

    def rollouts(prompts, trainer):
        return {
            "prompt_ids": [list(row.prompt_ids) for row in made],
            "completion_ids": [list(row.response_ids) for row in made],
            "logprobs": [list(row.logprobs) for row in made],
            "env_mask": [list(row.mask) for row in made],
        }

    return GRPOTrainer(
        model=model.module,
        reward_funcs=lambda completions, **_: REWARDS,
        args=trl_arguments(directory, **keys),
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=model.tokenizer,
        rollout_func=rollouts,
        callbacks=[kept],
    )


def two_groups():
    members = {f"r{number}": reward for number, reward in enumerate(REWARDS)}
    names = list(members)
    return advantages([{n: members[n] for n in names[:4]}, {n: members[n] for n in names[4:]}]).values


def assert_gradients_equal(left, right):
    assert left.keys() == right.keys()
    assert any(tensor.abs().max() > 1e-3 for tensor in left.values())
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=1e-5, atol=ATOL, msg=name)


def test_a_step_equals_trls_own_trainer(model, tiny_model, rows, tmp_path):
    made = with_own_logprobs(model.module, rows, random_rows(rows, 8))
    ours, kept = our_trainer(model, made, two_groups(), tmp_path / "ours")
    ours.train()

    theirs = Gradients()
    fresh = load_model(str(tiny_model), lora=None, seed=0)
    trl_trainer(fresh, tmp_path / "trl", made, theirs).train()

    assert_gradients_equal(kept.values, theirs.values)
    assert kept.logs["loss"] == pytest.approx(theirs.logs["loss"], abs=ATOL)
    assert kept.logs["grad_norm"] == pytest.approx(theirs.logs["grad_norm"], rel=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_clipping_and_kl_equal_trls_own_loss(model, tiny_model, rows, tmp_path, beta):
    made = random_rows(rows, 8)
    of_rollout = two_groups()
    ours, kept = our_trainer(model, made, of_rollout, tmp_path / "ours", beta=beta)
    fresh = load_model(str(tiny_model), lora=None, seed=0)
    theirs = trl_trainer(fresh, tmp_path / "trl", made, Gradients(), beta=beta)
    for module in (model.module, fresh.module):  # away from the reference
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.02)
    ours.train()

    [block] = make_blocks(made, of_rollout, pad_id=0, block_tokens=10**6)
    block["tool_mask"] = (block["tool_mask"] > 0).float()
    if beta:
        block["ref_per_token_logps"] = theirs._get_per_token_logps_and_entropies(
            theirs.ref_model,
            torch.cat([block["prompt_ids"], block["completion_ids"]], dim=1),
            torch.cat([block["prompt_mask"], block["completion_mask"]], dim=1),
            block["completion_ids"].size(1),
        )[0].detach()
    theirs.current_gradient_accumulation_steps = 1
    loss = theirs._compute_loss(fresh.module, block)
    loss.backward()

    assert kept.logs["clip_ratio"] > 0.05
    assert (kept.logs.get("kl", 0.0) > 0.01) == bool(beta)
    assert kept.logs["loss"] == pytest.approx(loss.item(), abs=ATOL)
    assert_gradients_equal(kept.values, {n: p.grad for n, p in fresh.module.named_parameters()})


def test_ragged_groups_and_shared_rollouts_equal_a_loop_over_rows(model, tiny_model, rows, tmp_path):
    """13 rows in groups of 3, 4 and 6; the last group is two rollouts of three rows each."""
    rollouts = [f"r{number}" for number in range(7)] + ["r7"] * 3 + ["r8"] * 3
    weights = [1.0] * 7 + [0.5, 0.25, 0.25] + [1 / 3] * 3
    made = [
        rows(
            row.rollout_id,
            list(row.prompt_ids),
            list(row.response_ids),
            mask=list(row.mask),
            logprobs=list(row.logprobs),
            weight=weight,
        )
        for row, weight in zip(random_rows(rows, 13, seed=3, rollouts=rollouts), weights, strict=True)
    ]
    of_rollout = {f"r{number}": (-1) ** number * (0.3 + number / 5) for number in range(9)}
    _, kept = ours = our_trainer(model, made, of_rollout, tmp_path / "ours", block_tokens=50)
    ours[0].train()

    plain = load_model(str(tiny_model), lora=None, seed=0).module
    loss = torch.zeros(())
    for row in made:
        ratio = (logps_of(plain, row) - torch.tensor(list(row.logprobs))).exp()
        advantage = of_rollout[row.rollout_id]
        objective = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        sampled = torch.tensor(list(row.mask))
        loss = loss - row.weight * (objective * sampled).sum() / sampled.sum() / 9
    loss.backward()

    assert kept.logs["loss"] == pytest.approx(loss.item(), abs=ATOL)
    assert_gradients_equal(kept.values, {n: p.grad for n, p in plain.named_parameters()})


@pytest.mark.parametrize("block_tokens", [1, 40, 10**6])
def test_cutting_into_blocks_changes_no_number(model, tiny_model, rows, tmp_path, block_tokens):
    made = random_rows(rows, 8)
    trainer, kept = our_trainer(model, made, two_groups(), tmp_path / "one", block_tokens=100)
    trainer.train()
    fresh = load_model(str(tiny_model), lora=None, seed=0)
    trainer, other = our_trainer(fresh, made, two_groups(), tmp_path / "two", block_tokens=block_tokens)
    trainer.train()

    assert_gradients_equal(kept.values, other.values)
    for name in ("loss", "grad_norm", "entropy", "clip_ratio", "tokens"):
        assert kept.logs[name] == pytest.approx(other.logs[name], rel=1e-5, abs=1e-6), name


def test_large_logits_take_trls_tiled_head_with_the_same_result(
    model, tiny_model, rows, tmp_path, monkeypatch
):
    made = random_rows(rows, 8)
    trainer, kept = our_trainer(model, made, two_groups(), tmp_path / "one", temperature=0.7)
    trainer.train()
    monkeypatch.setattr("agentlightning_rl.trainer.SMALL_LOGITS", 0)
    fresh = load_model(str(tiny_model), lora=None, seed=0)
    trainer, tiled = our_trainer(fresh, made, two_groups(), tmp_path / "two", temperature=0.7)
    trainer.train()

    assert_gradients_equal(kept.values, tiled.values)
    assert kept.logs["entropy"] == pytest.approx(tiled.logs["entropy"], rel=1e-5)


def test_the_reference_of_a_lora_is_the_model_without_it(tiny_model, rows, tmp_path):
    model = load_model(str(tiny_model), lora={"r": 4}, seed=0)
    made = random_rows(rows, 8)
    trainer, kept = our_trainer(
        model, made, two_groups(), tmp_path / "ours", beta=0.1, learning_rate=1e-2
    )
    trainer.train()
    assert kept.logs["kl"] == pytest.approx(0.0, abs=1e-6)  # before the first update

    [block] = make_blocks(made, two_groups(), pad_id=0, block_tokens=10**6)
    base = load_model(str(tiny_model), lora=None, seed=0).module
    reference = trainer._reference_logps(block)
    in_block = {
        tuple(ids.tolist()[: int(mask.sum())]): place
        for place, (ids, mask) in enumerate(
            zip(block["completion_ids"], block["completion_mask"], strict=True)
        )
    }
    for row in made:
        expected = logps_of(base, row).detach()
        found = reference[in_block[tuple(row.response_ids)], : len(expected)]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        assert not torch.allclose(logps_of(model.module, row), expected, atol=1e-3)
