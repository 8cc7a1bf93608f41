"""Makes LLM calls with one tool at work: ``python -m benchmarks.capture.worker TOOL URL``.

Each line of standard input asks for a block of calls, each line of standard output says what one took.
A tool has a process to itself, since what one has patched another must not meet.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
import openai

from benchmarks.capture.tools import TOOLS

AT_ONCE: Final = 256
QUESTION: Final[dict[str, Any]] = {
    "model": "bench",
    "temperature": 0.7,
    "messages": [
        {"role": "system", "content": "You answer questions about flights. " * 8},
        {"role": "user", "content": "Which flights go from Rome to Oslo on Monday?"},
        {"role": "assistant", "content": "There are two: at 9:40 and at 17:15. " * 3},
        {"role": "user", "content": "And which of them is cheaper for two people with bags?"},
    ],
}

Block: TypeAlias = Callable[[int], None]


class Ask(msgspec.Struct, frozen=True):
    """A block of calls to make."""

    case: str
    calls: int


class Took(msgspec.Struct, frozen=True):
    """What a block took: seconds until its last reply, and seconds of CPU until all was recorded."""

    wall_s: float
    cpu_s: float


def blocks(url: str) -> dict[str, Block]:
    """How the calls of each case are made."""
    client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0)
    many = openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0)
    loop = asyncio.new_event_loop()

    def plain(calls: int) -> None:
        for _ in range(calls):
            client.chat.completions.create(**QUESTION)

    def streamed(calls: int) -> None:
        for _ in range(calls):
            for _chunk in client.chat.completions.create(**QUESTION, stream=True):
                pass

    async def at_once(calls: int) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with places:
                await many.chat.completions.create(**QUESTION)

        await asyncio.gather(*(one() for _ in range(calls)))

    return {
        "plain": plain,
        "streamed": streamed,
        f"concurrent_{AT_ONCE}": lambda calls: loop.run_until_complete(at_once(calls)),
    }


def main(tool: str, url: str) -> None:
    """Do what standard input asks for until it ends."""
    made = blocks(url)
    with TOOLS[tool]() as flush:
        for line in sys.stdin:
            ask = msgspec.json.decode(line, type=Ask)
            cpu, started = time.process_time(), time.perf_counter()
            made[ask.case](ask.calls)
            wall = time.perf_counter() - started
            flush()
            took = Took(wall_s=wall, cpu_s=time.process_time() - cpu)
            sys.stdout.write(msgspec.json.encode(took).decode() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
