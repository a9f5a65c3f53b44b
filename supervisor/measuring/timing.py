"""Time prompts and tokens of one model in a llama-server of its own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.launch import LaunchOptions, ModelFacts, build_launch
from supervisor.engines.client import EngineUnreachable
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.log import OutputLog
from supervisor.errors import EngineUnusable
from supervisor.llamacpp.libraries import runtime_libraries
from supervisor.system.paths import Places
from supervisor.system.sockets import fresh_socket


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer's times.

    Attributes:
        prompt_tokens, prompt_seconds: of the whole prompt.
        passes, decode_seconds: tokens that were made after the first, which the prompt makes, and their time.
    """

    prompt_tokens: int
    prompt_seconds: float
    passes: int
    decode_seconds: float


class Bench:
    """A running engine that is timed. Made by `timed_engine`."""

    def __init__(self, engine: Engine, n_vocab: int) -> None:
        self._engine = engine
        self._n_vocab = n_vocab

    async def time(self, prompt: int, tokens: int) -> Timing:
        """Return the times of one answer to a prompt of so many tokens. Raise EngineUnusable."""
        ids = [1 + (37 * place + 11 * (place // 7)) % (self._n_vocab - 1) for place in range(prompt)]
        body = {"prompt": ids, "n_predict": tokens, "cache_prompt": False, "ignore_eos": True, "seed": 1}
        try:
            async with self._engine.client.post("/completion", json.dumps(body).encode()) as answer:
                found = (await answer.json_object())["timings"]
            return Timing(
                int(found["prompt_n"]),
                found["prompt_ms"] / 1000,
                max(1, int(found["predicted_n"]) - 1),
                found["predicted_ms"] / 1000,
            )
        except (EngineUnreachable, LookupError, TypeError, ValueError) as error:
            raise EngineUnusable(
                f"The engine gave no times: {error!r}; see `supervisor doctor`.", log_lines=self._engine.tail(10)
            ) from error


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
    engine = Engine(launch, log=OutputLog(None), record_dir=places.pid_records, limits=limits, environ=env)
    try:
        await engine.start(lambda _: None)
        yield Bench(engine, n_vocab)
    finally:
        await engine.stop()
