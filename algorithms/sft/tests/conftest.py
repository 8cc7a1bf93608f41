"""A tiny real model, a real store, and the smallest context an algorithm can run in."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from agentlightning.algorithm import AlgorithmContext, Budget, Evaluation
from agentlightning.engine import Engine, EngineInfo, FullDir
from agentlightning.llm_api import llm_span, read_call
from agentlightning.recording.attempt import reward_span
from agentlightning.recording.ids import new_span_id, root_span_id_of, trace_id_of
from agentlightning.records import LLM, Outcome, ResourcesVersion, RolloutRequest, Span
from agentlightning.store import Claim, Result, Store
from agentlightning.store.memory import MemoryStore
from agentlightning_transformers.tiny import build_tiny_policy, render
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(1)

ITEMS = ("lamps", "chairs", "mugs", "clocks")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "order",
            "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
        },
    }
]


def chat(item: str) -> list[dict[str, Any]]:
    """A customer asks for something and is answered."""
    return [
        {"role": "user", "content": f"Any {item}?"},
        {"role": "assistant", "content": f"Yes, {item} we have."},
    ]


def order_chat(item: str) -> list[dict[str, Any]]:
    """The assistant calls a tool in between, in the protocol's shape."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "order", "arguments": f'{{"item": "{item}"}}'},
    }
    return [
        {"role": "user", "content": f"Please order {item}."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "assistant", "content": f"Ordered {item}."},
    ]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [render(make(item), TOOLS) for item in ITEMS for make in (chat, order_chat)] * 3
    return build_tiny_policy(
        tmp_path_factory.mktemp("model"),
        texts,
        hidden_size=64,
        layers=2,
        heads=2,
        kv_heads=1,
        mlp_size=128,
    )


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def store() -> Iterator[Store]:
    with MemoryStore() as store:
        yield store


@dataclass
class Recorder:
    """Records rollouts as a run would have: real spans, in a real store."""

    store: Store
    tokenizer: Any
    run_id: str

    def rollout(
        self,
        *requests: tuple[list[dict[str, Any]], dict[str, Any]],
        reward: float | None = None,
        group: str | None = None,
        mode: str = "train",
        status: str = "succeeded",
        **call: Any,
    ) -> Claim:
        """One rollout with a call for each (messages, reply)."""
        self.store.enqueue(self.run_id, [RolloutRequest(input="task", mode=mode, group_id=group)])
        (claim,) = self.store.claim(self.run_id, "worker")
        spans = [
            self._span(claim, seq, messages, reply, **call)
            for seq, (messages, reply) in enumerate(requests, 1)
        ]
        if reward is not None:
            spans.append(reward_span(claim.key, reward, source="emitted"))
        self.store.finish([Result(key=claim.key, outcome=Outcome(status=status), spans=tuple(spans))])
        return claim

    def prompt_ids(self, messages: list[dict[str, Any]], tools: Any = None) -> list[int]:
        made = self.tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, return_dict=True
        )
        return made["input_ids"]

    def letters(self, text: str) -> list[int]:
        """Token ids of a text as a model may sample them, and no tokenizer makes them: letter by letter."""
        return [self.tokenizer(letter)["input_ids"][0] for letter in text]

    def _span(
        self,
        claim: Claim,
        seq: int,
        messages: list[dict[str, Any]],
        reply: dict[str, Any],
        *,
        ids: bool = True,
        shift: int = 0,
        tools: Any = None,
        agent: str | None = None,
    ) -> Span:
        end = self.tokenizer.eos_token_id
        response = [*self.letters(reply["content"] or ""), end]
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", **reply},
            "finish_reason": "stop",
        }
        response_body: dict[str, Any] = {"id": f"r{seq}", "model": "policy", "choices": [choice]}
        if ids:
            size = len(self.tokenizer)
            choice["token_ids"] = [(token + shift) % size for token in response]
            response_body["prompt_token_ids"] = [
                (token + shift) % size for token in self.prompt_ids(messages, tools)
            ]
        call = read_call(
            seq=seq,
            api="chat",
            agent=agent,
            base_url="in-process",
            request={"model": "policy", "messages": messages, **({"tools": tools} if tools else {})},
            response=response_body,
        )
        return llm_span(
            call,
            key=claim.key,
            trace_id=trace_id_of(claim.key),
            span_id=new_span_id(),
            parent_id=root_span_id_of(claim.key),
            start_ns=seq,
            end_ns=seq + 1,
        )


@pytest.fixture
def recorder(store: Store, tokenizer: Any) -> Recorder:
    run = store.create_run("recorded", {})
    store.publish(run.run_id, {"llm": LLM(model="policy")})
    return Recorder(store, tokenizer, run.run_id)


class DirectoryEngine(Engine):
    """Answers greedily with the weights of a directory."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.module: Any = None

    def start(self) -> EngineInfo:
        self.module = AutoModelForCausalLM.from_pretrained(self.model).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(self.model)
        return EngineInfo(model="policy")

    def load(self, weights: object, version: int, *, lora: str | None = None) -> str:
        assert isinstance(weights, FullDir)
        self.module = AutoModelForCausalLM.from_pretrained(weights.path).eval()
        return "policy"

    def answer(self, question: str) -> str:
        messages = [{"role": "user", "content": question}]
        made = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        out = self.module.generate(**made, max_new_tokens=24, do_sample=False)
        return self.tokenizer.decode(out[0, made["input_ids"].shape[1] :], skip_special_tokens=True)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.module = None


class StoreContext(AlgorithmContext):
    """A context over a store; a task is a question, answered by the served engine."""

    def __init__(self, store: Store, model: Path, run_dir: Path, **keys: Any) -> None:
        self.config = SimpleNamespace(
            model=str(model),
            trained_agents=keys.pop("agents", None),
            reward_version="agent",
            report_to=(),
        )
        self.store = store
        self.train: Sequence[Any] = keys.pop("train", ())
        self.val: Sequence[Any] = keys.pop("val", ())
        self.run = keys.pop("run", None) or store.create_run("sft", {})
        self.resources = store.publish(self.run.run_id, {})
        self.seed = 0
        self.run_dir = run_dir
        self.budget = Budget()
        self.served: DirectoryEngine | None = None
        self.rewards: dict[int, float] = {}
        self.done: list[tuple[int, int]] = []
        self.stop_at: int | None = keys.pop("stop_at", None)
        assert not keys

    def engine(self) -> Engine:
        return DirectoryEngine(self.config.model)

    def serve(self, engine, *, name="llm", sampling=None, version=0) -> LLM:
        self.served = engine
        llm = LLM(model=engine.start().model, version=version)
        self.publish({name: llm})
        return llm

    def rollouts(self, tasks, **keys):
        raise NotImplementedError

    def publish(self, resources, *, weights=None, note="", candidate=False) -> ResourcesVersion:
        merged = {**self.resources.resources, **resources}
        for name, item in (weights or {}).items():
            version = merged[name].version + 1
            self.served.load(item, version)
            merged[name] = msgspec.structs.replace(merged[name], version=version)
        self.resources = self.store.publish(self.run.run_id, merged, note=note)
        return self.resources

    def evaluate(self, resources=None, *, step: int) -> Evaluation:
        right = [self.served.answer(task["question"]) == task["answer"] for task in self.val]
        self.rewards[step] = sum(right) / len(right)
        return Evaluation(self.rewards[step], len(right), 0, 0, self.resources.version)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.store.log_metrics(self.run.run_id, step, metrics)

    def metrics(self) -> dict[int, dict[str, float]]:
        return {item.step: item.values for item in self.store.metrics(self.run.run_id)}

    def progress(self, done: int, total: int, label: str = "") -> None:
        self.done.append((done, total))

    def checkpoint(self, state) -> None:
        self.store.save_state(self.run.run_id, state)

    def restore(self):
        return self.store.load_state(self.run.run_id)

    def stopping(self) -> bool:
        return self.stop_at is not None and len(self.done) >= self.stop_at


@pytest.fixture
def context(store: Store, tiny_model: Path, tmp_path: Path) -> Callable[..., StoreContext]:
    def build(**keys: Any) -> StoreContext:
        model = keys.pop("model", tiny_model)
        return StoreContext(store, model, keys.pop("run_dir", tmp_path / "run"), **keys)

    return build
