"""Time prompts and tokens of one model in a llama-server of its own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from supervisor.core.launch import LaunchOptions, ModelFacts, build_launch
from supervisor.engines.client import EngineUnreachable
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.llama.manner import llama_engine
from supervisor.engines.log import OutputLog
from supervisor.errors import EngineUnusable
from supervisor.llamacpp.libraries import runtime_libraries
from supervisor.system.paths import Places
from supervisor.system.sockets import fresh_socket

_BYTES = 256  # tokens of single bytes, the first of a generated model


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer's times.

    Attributes:
        prompt_tokens, prompt_seconds: of the whole prompt.
        passes: tokens that were made after the first, which the prompt makes.
        token_seconds: the middle of their times, which a disturbance of some does not change.
    """

    prompt_tokens: int
    prompt_seconds: float
    passes: int
    token_seconds: float


class Bench:
    """A running engine that is timed. Made by `timed_engine`."""

    def __init__(self, engine: Engine, n_vocab: int) -> None:
        self._engine = engine
        self._n_vocab = n_vocab

    async def time(self, prompt: int, tokens: int) -> Timing:
        """Return the times of one answer to a prompt of so many tokens. Raise EngineUnusable."""
        ids = [1 + (37 * place + 11 * (place // 7)) % (self._n_vocab - 1) for place in range(prompt)]
        asked = {"prompt": ids, "n_predict": tokens, "stream": True, "timings_per_token": True}
        whole = {"logit_bias": [[byte, False] for byte in range(_BYTES)]}  # a part of a character is not sent at once
        body = json.dumps({**asked, **whole, "cache_prompt": False, "ignore_eos": True, "seed": 1}).encode()
        try:
            async with self._engine.client.post("/completion", body) as answer:
                return read_timing(await answer.read())
        except (EngineUnreachable, LookupError, TypeError, ValueError) as error:
            raise EngineUnusable(
                f"The engine gave no times: {error!r}; see `supervisor doctor`.", log_lines=self._engine.tail(10)
            ) from error


def read_timing(stream: bytes) -> Timing:
    """Read the times from a streamed answer. Raise LookupError, TypeError or ValueError where they are missing."""
    events = [json.loads(line[5:]) for line in stream.splitlines() if line.startswith(b"data: {")]
    told = [event["timings"] for event in events if "timings" in event]
    ends = [(int(one["predicted_n"]), float(one["predicted_ms"])) for one in told]
    steps = [(after - before) / (n - m) for (m, before), (n, after) in pairwise(ends) if n > m]
    first = told[0]
    return Timing(int(first["prompt_n"]), first["prompt_ms"] / 1000, len(steps), median(steps) / 1000)


@contextlib.asynccontextmanager
async def timed_engine(
    binary: Path, places: Places, env: Mapping[str, str], model: Path, options: LaunchOptions, n_vocab: int
) -> AsyncIterator[Bench]:
    """Run an engine with these options for the block. Raise EngineStartFailed and its like."""
    launch = build_launch(
        str(binary),
        str(model),
        str(fresh_socket(places.runtime)),
        "timed",
        options,
        ModelFacts(),
        libraries=runtime_libraries(binary, env),
    )
    limits = EngineLimits()
    engine = llama_engine(launch, log=OutputLog(None), record_dir=places.pid_records, limits=limits, environ=env)
    try:
        await engine.start(lambda _: None)
        yield Bench(engine, n_vocab)
    finally:
        await engine.stop()
