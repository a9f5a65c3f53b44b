"""Learn what one device does per kind of work, from generated models that differ in one thing at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from supervisor.core.devices.model import HOST, Device
from supervisor.core.gguf import read_header
from supervisor.core.launch import LaunchOptions
from supervisor.core.memory import EstimateOptions
from supervisor.core.spec import ModelSpec, read_spec
from supervisor.core.speed.fit import Timed, fit
from supervisor.core.speed.machine import Rates
from supervisor.core.speed.published import host_rates, published_rates
from supervisor.core.speed.work import decode_work, prefill_work
from supervisor.measuring.maker import Shape, write_model
from supervisor.measuring.timing import Bench, Timing, timed_engine
from supervisor.system.paths import Places

_PLAIN = Shape(n_embd=1024, n_layer=12, n_head=8, n_head_kv=8, n_ff=4096)
_TYPES = ("q8_0", "q4_0", "q4_K", "q5_K", "q6_K", "f16")
_ANY_GPU = published_rates(Device("GPU0", "", "", 0, 0))  # of a guess only the proportions count
_MOST_REPEATS = 10
_ALIKE = 1.04
_TOKENS = 24
_SHORT = 16
_LONG = 256
_NARROW = 10.0  # times as long as the rest: what is guessed for heads that fill no vector; too much does no harm
_SMALL = {"read": "read:small", "multiply_many": "multiply_many:small"}


@dataclass(frozen=True, slots=True)
class Step:
    """One model to time, and the prompts that it is given.

    `small`: its weights stay in the processor's caches, so that their speed says nothing of larger ones.
    """

    shape: Shape
    prompts: tuple[int, ...]
    small: bool = False


def steps() -> tuple[Step, ...]:
    """Return the models: one per type, a wide one, layers without weights, a large vocabulary, experts, long caches."""
    thin = Shape("q8_0", 256, 32, 4, 4, 512)
    return (
        *(Step(replace(_PLAIN, kind=kind), (_SHORT, _LONG)) for kind in _TYPES),
        Step(Shape("q8_0", 2048, 3, 16, 16, 8192), (_SHORT, _LONG)),
        Step(thin, (_SHORT, _LONG), small=True),
        Step(replace(thin, n_layer=8, n_vocab=100_000), (_SHORT,), small=True),
        Step(Shape("q4_0", 1024, 8, 16, 4, 768, experts=16, used=8), (_SHORT, _LONG)),
        Step(Shape("q8_0", 1024, 8, 16, 4, 768, experts=16, used=8), (_SHORT, _LONG)),
        Step(Shape("q4_K", 1024, 8, 16, 4, 768, experts=16, used=8), (_SHORT, _LONG)),
        Step(Shape("q8_0", 512, 6, 8, 8, 512), (_SHORT, 1024, 2048), small=True),
        Step(Shape("q8_0", 512, 6, 8, 2, 512), (_SHORT, 1024, 2048), small=True),
        Step(Shape("q8_0", 1024, 6, 8, 1, 512), (_SHORT, 2048), small=True),
        Step(Shape("q8_0", 1024, 6, 8, 8, 512), (_SHORT, 2048), small=True),
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """Times one device.

    Attributes:
        device: its name for `--device`; `CPU` for the host.
        repack: False: weights stay as the file has them.
        told: hears each step's number, beginning with 1, and how many there are.
        todo: the models.
    """

    binary: Path
    places: Places
    env: Mapping[str, str]
    device: str = HOST
    threads: int | None = None
    repack: bool | None = None
    told: Callable[[int, int], None] = lambda step, count: None
    todo: tuple[Step, ...] = field(default_factory=steps)

    async def rates(self) -> Rates:
        """Return what the device does. Raise EngineStartFailed, EngineUnusable, OSError."""
        runs: list[Timed] = []
        for number, step in enumerate(self.todo, 1):
            self.told(number, len(self.todo))
            found = await self._step(step)
            runs += [apart(run) for run in found] if step.small else found
        return without_small(fit(runs, self._guess()))

    def _guess(self) -> Rates:
        """Return the rates of whose proportions some count: where no run tells them apart."""
        if self.device != HOST:
            return _ANY_GPU
        rates = host_rates(self.threads)
        return Rates({**rates.seconds, "attend_rest": _NARROW * rates.of("attend")})

    async def _step(self, step: Step) -> list[Timed]:
        self.places.cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="timed-", dir=self.places.cache) as folder:
            model = Path(folder) / "model.gguf"
            await asyncio.to_thread(write_model, model, step.shape)
            spec = await asyncio.to_thread(read_model, model)
            options = self._options(max(step.prompts))
            async with timed_engine(self.binary, self.places, self.env, model, options, step.shape.n_vocab) as bench:
                await bench.time(_SHORT, 2)  # the first takes longer
                return [run for prompt in step.prompts for run in await self._runs(bench, spec, prompt)]

    async def _runs(self, bench: Bench, spec: ModelSpec, prompt: int) -> list[Timed]:
        timings = await steady(partial(bench.time, prompt, _TOKENS))
        return timed(spec, self.placed(), timings, self.device, self.threads or 1)

    def _options(self, prompt: int) -> LaunchOptions:
        context = prompt + 2 * _TOKENS + 256
        return LaunchOptions(
            ctx_size=context,
            parallel=1,
            threads=self.threads,
            repack=self.repack,
            device=() if self.device == HOST else (self.device,),
        )

    def placed(self) -> EstimateOptions:
        """Return the placement of the models: all on the device."""
        return EstimateOptions(devices=() if self.device == HOST else (self.device,))


async def steady(again: Callable[[], Awaitable[Timing]]) -> list[Timing]:
    """Repeat a request until its two quickest prompts are alike, and its two quickest answers; ten times at most.

    Other programs only ever make a run slower: what was reached twice is what the machine does alone.
    """
    found = [await again(), await again()]
    while len(found) < _MOST_REPEATS and not (_are_alike(map(_prompt, found)) and _are_alike(map(_token, found))):
        found.append(await again())
    return found


def _prompt(timing: Timing) -> float:
    return timing.prompt_seconds / timing.prompt_tokens


def _token(timing: Timing) -> float:
    return timing.token_seconds


def _are_alike(seconds: Iterable[float]) -> bool:
    quickest, next_one, *_ = sorted(seconds)
    return next_one <= quickest * _ALIKE


def read_model(path: Path) -> ModelSpec:
    """Return the facts of a file. Raise ModelFileError, OSError."""
    with path.open("rb") as file:
        return read_spec(read_header(file, path.stat().st_size))


def apart(run: Timed) -> Timed:
    """Return the run of a small model: its weights are of a kind of their own."""
    return Timed({_SMALL.get(kind.partition(":")[0], kind): amount for kind, amount in run.work.items()}, run.seconds)


def without_small(rates: Rates) -> Rates:
    """Return the rates without the kinds of small models."""
    kept = {kind: seconds for kind, seconds in rates.seconds.items() if kind not in _SMALL.values()}
    return Rates(kept, rates.source)


def timed(spec: ModelSpec, placed: EstimateOptions, timings: list[Timing], device: str, threads: int) -> list[Timed]:
    """Return the quickest prompt and the quickest tokens of several answers, each with its work on the device."""
    prompt, tokens = min(timings, key=_prompt), min(timings, key=_token)
    prefill = prefill_work(spec, placed, prompt.prompt_tokens).get(device, {})
    decode = decode_work(spec, placed, tokens.prompt_tokens + tokens.passes // 2, threads)
    merged = {kind: sum(part.get(kind, 0.0) for part in decode.values()) for part in decode.values() for kind in part}
    return [Timed(prefill, prompt.prompt_seconds), Timed(merged, tokens.token_seconds)]
