"""A run without HTTP: a context whose rollouts are sampled straight from the served module."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from agentlightning.algorithm import (
    AlgorithmContext,
    Budget,
    Evaluation,
    RolloutBatch,
    RolloutResult,
)
from agentlightning.engine import Engine, EngineInfo, FullDir, Live
from agentlightning.errors import EngineError, Interrupted
from agentlightning.records import LLM, Floats, ResourcesVersion, Rollout, Run, Tokens
from agentlightning.samples import CreditRules, Limits, Row, Transition, Turn
from agentlightning_transformers.tiny import build_tiny_policy
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["please order three lamps", "two of them are left"]
    return build_tiny_policy(
        tmp_path_factory.mktemp("model"),
        texts,
        hidden_size=32,
        layers=2,
        heads=2,
        kv_heads=1,
        mlp_size=64,
    )


def make_row(
    rollout_id: str,
    prompt: list[int],
    response: list[int],
    *,
    mask: list[int] | None = None,
    logprobs: list[float] | None = None,
    weight: float = 1.0,
) -> Row:
    return Row(
        rollout_id=rollout_id,
        attempt=1,
        prompt_ids=Tokens(prompt),
        response_ids=Tokens(response),
        mask=bytes(mask or [1] * len(response)),
        logprobs=Floats(logprobs or [-1.0] * len(response)),
        turns=(Turn(seq=0, start=0, end=len(response)),),
        weight=weight,
    )


def make_result(
    rollout_id: str,
    group_id: str,
    reward: float | None,
    calls: int = 1,
    *,
    status: str = "succeeded",
    version: int = 1,
    tokens: int = 2,
) -> RolloutResult:
    """A finished rollout whose calls continue each other."""
    rollout = Rollout(
        rollout_id=rollout_id,
        run_id="run",
        input=0,
        mode="train",
        status=status,
        created_at=0.0,
        group_id=group_id,
        attempt=1,
    )
    prompt, transitions = [1], []
    for seq in range(calls):
        response = list(range(10, 10 + tokens))
        transitions.append(
            Transition(
                rollout_id=rollout_id,
                attempt=1,
                seq=seq,
                choice=0,
                group_id=group_id,
                prompt_ids=Tokens(prompt),
                response_ids=Tokens(response),
                logprobs=Floats([-0.5] * tokens),
                model_version=version,
                temperature=1.0,
            )
        )
        prompt = [*prompt, *response, 2]
    return RolloutResult(
        rollout=rollout,
        spans=(),
        reward=reward,
        rewards={},
        transitions=tuple(transitions),
        rules=CreditRules(),
    )


class DirectEngine(Engine):
    """Samples from whatever module it was given; its lock is not reentrant, so misuse hangs."""

    def __init__(self, *, takes_live: bool = True) -> None:
        self.takes_live = takes_live
        self.module: Any = None
        self.loaded: list[object] = []
        self._lock = threading.Lock()

    def start(self) -> EngineInfo:
        return EngineInfo(model="policy")

    def load(self, weights: object, version: int, *, lora: str | None = None) -> str:
        if isinstance(weights, Live):
            if not self.takes_live:
                raise EngineError("this engine lives in another process")
            self.module = weights.module
        else:
            assert isinstance(weights, FullDir)
            self.module = AutoModelForCausalLM.from_pretrained(weights.path).eval()
        self.loaded.append(weights)
        return "policy"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        assert self._lock.acquire(timeout=5), "the engine is in use"
        try:
            yield
        finally:
            self._lock.release()

    def stop(self) -> None:
        self.module = None

    def sample(self, prompt: list[int], count: int, new: int, seed: int) -> tuple[Any, Any]:
        """``count`` continuations of ``new`` tokens and their log-probabilities."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.tensor([prompt] * count)
        logprobs = []
        with self.exclusive(), torch.no_grad():
            assert not self.module.training
            for _ in range(new):
                logits = self.module(input_ids=ids).logits[:, -1]
                token = torch.multinomial(logits.softmax(-1), 1, generator=generator)
                logprobs.append(logits.log_softmax(-1).gather(1, token))
                ids = torch.cat([ids, token], dim=1)
        return ids[:, len(prompt) :].tolist(), torch.cat(logprobs, dim=1).tolist()


class Done(RolloutBatch):
    def __init__(self, results: list[RolloutResult]) -> None:
        self._results = results

    def __iter__(self) -> Iterator[RolloutResult]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def wait(self, timeout_s: float | None = None) -> list[RolloutResult]:
        return self._results

    def cancel(self) -> None: ...


class DirectContext(AlgorithmContext):
    """Keeps what a store would, in dictionaries; give them to another context for a restart.

    Task ``t`` is the prompt ``[1, t]``; a rollout has two calls of three tokens, and its reward is
    the share of sampled tokens below 131, half of the vocabulary.
    """

    def __init__(self, model: Path, run_dir: Path, *, tasks: int = 4, takes_live: bool = True) -> None:
        self.config = SimpleNamespace(model=str(model), trained_agents=None, report_to=())
        self.run = Run(run_id="run", name="test", config={}, created_at=0.0)
        self.train = list(range(5, 5 + tasks))
        self.val = list(range(40, 44))
        self.seed = 0
        self.run_dir = run_dir
        self.budget = Budget()
        self.resources = ResourcesVersion(run_id="run", version=0, created_at=0.0, resources={})
        self.metrics: dict[int, dict[str, float]] = {}
        self.kept: dict[str, Any] = {}
        self.results: dict[str, list[RolloutResult]] = {}
        self.evaluations: dict[int, float] = {}
        self.keys: list[str] = []
        self.done: list[tuple[int, int]] = []
        self.served = DirectEngine(takes_live=takes_live)
        self.stop_after = 10**9
        self.interrupt_at = ""
        self._llm = LLM(model="")

    def engine(self) -> Engine:
        return self.served

    def serve(self, engine, *, name="llm", sampling=None, version=0) -> LLM:
        self.sampling = sampling
        self._llm = LLM(model=engine.start().model, version=version)
        return self._llm

    def publish(self, resources, *, weights=None, note="", candidate=False) -> ResourcesVersion:
        for item in (weights or {}).values():
            self._llm = msgspec.structs.replace(self._llm, version=self._llm.version + 1)
            self.served.load(item, self._llm.version)
        merged = {"llm": self._llm, **resources}
        self.resources = ResourcesVersion(
            run_id="run", version=self.resources.version + 1, created_at=0.0, resources=merged
        )
        return self.resources

    def rollouts(
        self,
        tasks,
        *,
        resources=None,
        n=1,
        mode="train",
        config=None,
        rules=None,
        limits=None,
        level="transition",
        key=None,
    ) -> RolloutBatch:
        if key == self.interrupt_at:
            raise Interrupted("stopped by the test")
        self.keys.append(key)
        if key not in self.results:
            self.results[key] = [
                result
                for place, task in enumerate(tasks)
                for result in self._group(f"{key}-{place}", task, n, rules)
            ]
        return Done(self.results[key])

    def _group(self, group: str, task: int, n: int, rules: CreditRules) -> Iterator[RolloutResult]:
        seed = zlib.crc32(group.encode())
        first, first_logprobs = self.served.sample([1, task], n, 3, seed)
        for member in range(n):
            prompt = [1, task, *first[member], 2]
            [second], [second_logprobs] = self.served.sample(prompt, 1, 3, seed + member)
            sampled = [*first[member], *second]
            template = make_result(f"{group}-{member}", group, None, calls=2, tokens=3)
            ids = [
                ([1, task], first[member], first_logprobs[member]),
                (prompt, second, second_logprobs),
            ]
            transitions = tuple(
                msgspec.structs.replace(
                    one,
                    prompt_ids=Tokens(before),
                    response_ids=Tokens(after),
                    logprobs=Floats(logprobs),
                    model_version=self._llm.version,
                )
                for one, (before, after, logprobs) in zip(template.transitions, ids, strict=True)
            )
            yield RolloutResult(
                rollout=template.rollout,
                spans=(),
                reward=sum(token < 131 for token in sampled) / len(sampled),
                rewards={},
                transitions=transitions,
                rules=rules,
                limits=Limits(),
            )

    def evaluate(self, resources=None, *, step: int) -> Evaluation:
        results = self.rollouts(
            self.val, n=4, mode="val", key=f"val-{step}", rules=CreditRules()
        ).wait()
        reward = sum(result.reward for result in results) / len(results)
        self.evaluations[step] = reward
        return Evaluation(reward, len(results), 0, 0, self.resources.version)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.metrics[step] = dict(metrics)

    def progress(self, done: int, total: int, label: str = "") -> None:
        self.done.append((done, total))

    def checkpoint(self, state) -> None:
        self.kept = msgspec.json.decode(msgspec.json.encode(state))

    def restore(self):
        return self.kept or None

    def stopping(self) -> bool:
        return len(self.metrics) + 1 >= self.stop_after


@pytest.fixture
def rows():
    return make_row


@pytest.fixture
def result():
    return make_result


@pytest.fixture
def context(tiny_model: Path, tmp_path: Path):
    def build(**keys: Any) -> DirectContext:
        return DirectContext(tiny_model, tmp_path / "run", **keys)

    return build
