"""The parts of the check, one after another; each leaves the machine as it found it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.gpucheck.account import MIB, Load, compare, engine_account, placed
from benchmarks.gpucheck.drive import Daemon, Refused, daemon, greedy_engine, neighbour
from benchmarks.gpucheck.models import GIB, Model, write_model

Scene = tuple[str, str]
_GREED = 4  # times a device's memory: what an engine asks for whose plan is wrong on purpose
_NEIGHBOUR = 0.6  # of a device's free memory
_WORD = 97  # a token of the vocabulary


@dataclass
class Check:
    """The engine, the folder for models, tokens of context and answers; devices are filled in as they are seen."""

    engine: Path
    folder: Path
    ctx: int
    tokens: int
    address_space: int = 0
    """Bytes that the engine whose plans are wrong may have; 0: no limit."""
    devices: dict[str, str] = field(default_factory=dict)
    memory: int = 64 * GIB
    """Of the largest device; the value stands where there is none."""

    def see(self, devices: Mapping[str, Mapping[str, Any]]) -> None:
        """Note the devices and their sizes."""
        self.devices |= {name: f"{one['description']}, {_mib(one['total_bytes'])}" for name, one in devices.items()}
        self.memory = max((one["total_bytes"] for one in devices.values()), default=self.memory)

    def settings(self, path: Path, **more: object) -> dict[str, object]:
        """A model's entry in the configuration."""
        return {"file": str(path), "ctx_size": self.ctx, "parallel": 1, **more}


def say(text: str) -> None:
    """Tell how far it is."""
    sys.stderr.write(f"gpu-check {time.strftime('%H:%M:%S')}: {text}\n")
    sys.stderr.flush()


def load_all(check: Check, models: Sequence[Model]) -> tuple[list[Load], list[Scene]]:
    """Each model alone, then the scenes with the first two."""
    loads: list[Load] = []
    scenes: list[Scene] = []
    for model in models:
        with _written(check, model) as path:
            if path is None:
                scenes.append((model.name, "left out: the disk has no room for it"))
                continue
            loads += _alone(check, model, path, scenes)
    with _written(check, models[0]) as first, _written(check, models[min(1, len(models) - 1)]) as second:
        if first and second:
            scenes += [_side_by_side(check, first, second), _beside_a_neighbour(check, models[0], first)]
            scenes += [_too_much(check, models[0], first, second)]
    return loads, scenes


@contextmanager
def _written(check: Check, model: Model) -> Iterator[Path | None]:
    """The model's file for the length of the block; None where the disk has no room."""
    path = check.folder / f"{model.name}.gguf"
    if path.exists():
        path = path.with_stem(f"{path.stem}-2")
    if shutil.disk_usage(check.folder).free < model.n_bytes + GIB // 4:
        yield None
        return
    started = time.monotonic()
    try:
        write_model(path, model)
        seconds = time.monotonic() - started
        say(f"{model.name}: {model.n_bytes / GIB:.2f} GiB, {model.layers} layers, written in {seconds:.1f} s")
        yield path
    finally:
        path.unlink(missing_ok=True)


def _alone(check: Check, model: Model, path: Path, scenes: list[Scene]) -> list[Load]:
    name = model.name
    with daemon(check.engine, check.folder / f"{name}.home", {name: check.settings(path)}) as running:
        before = running.devices()
        check.see(before)
        plan = running.plan(name)
        if not plan["fits"]:
            scenes.append((name, f"does not fit: {plan['message']}"))
            return []
        try:
            return [_loaded(check, running, model, plan, before)]
        except Refused as refused:
            scenes.append((name, f"`{refused.code}`: {refused.message}"))
            return []


def _loaded(
    check: Check, running: Daemon, model: Model, plan: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]
) -> Load:
    started = time.monotonic()
    status = running.load(model.name)
    seconds = time.monotonic() - started
    plan = status["plan"] or plan
    say(f"{model.name}: loaded in {seconds:.1f} s, {placed(plan)}")
    after = running.devices()
    found = engine_account(running.log(model.name), plan)
    load = Load(
        model.name,
        model.n_bytes,
        placed(plan),
        seconds,
        compare(plan, found) if found else (),
        {name: held for name, one in after.items() if (held := _held_by(status["pid"], one)) is not None},
        {name: before[name]["free_bytes"] - one["free_bytes"] for name, one in after.items() if name in before},
    )
    load = _with_speeds(check, running, load)
    running.unload(model.name)
    return load


def _held_by(pid: int, device: Mapping[str, Any]) -> int | None:
    return next((int(one["bytes"]) for one in device["processes"] if one["pid"] == pid), None)


def _with_speeds(check: Check, running: Daemon, load: Load) -> Load:
    """Measured with the second answer: the first compiles what the GPU needs."""
    prompt = [_WORD + number % 20 for number in range(4 * check.tokens)]
    running.complete(load.model, prompt[:8], 2)
    timings = running.complete(load.model, prompt, check.tokens)["timings"]
    rates = float(timings["prompt_per_second"]), float(timings["predicted_per_second"])
    say(f"{load.model}: {rates[0]:,.1f} tokens/s of prompt, {rates[1]:,.1f} of answer")
    return replace(load, prompt_rate=rates[0], answer_rate=rates[1])


def _side_by_side(check: Check, first: Path, second: Path) -> Scene:
    title = "two models side by side"
    say(title)
    models = {"one": check.settings(first), "two": check.settings(second)}
    with daemon(check.engine, check.folder / "two.home", models) as running:
        try:
            where = [placed(running.load(name)["plan"]) for name in models]
            answers = [running.complete(name, [_WORD] * 8, 4) for name in models]
        except Refused as refused:
            return title, f"`{refused.code}`: {refused.message}"
    counts = [str(answer["tokens_predicted"]) for answer in answers]
    return title, f"{'; '.join(where)}; both answered ({' and '.join(counts)} tokens)"


def _beside_a_neighbour(check: Check, model: Model, path: Path) -> Scene:
    title = f"another program holds {_NEIGHBOUR:.0%} of a device"
    say(title)
    with daemon(check.engine, check.folder / "n.home", {"one": check.settings(path)}) as running:
        devices = running.devices()
        if not devices:
            return title, "there is no device"
        name, device = next(iter(devices.items()))
        n_ctx = _tokens_for(model, int(device["free_bytes"] * _NEIGHBOUR) - model.n_bytes)
        if n_ctx is None:
            return title, "left out: the model alone is larger than that"
        with neighbour(check.engine, path, check.folder, name, n_ctx) as became:
            seen = running.devices()[name]["free_bytes"]
            told = f"neighbour: {became}; {_mib(device['free_bytes'])} free before it, {_mib(seen)} beside it; "
            try:
                return title, told + f"loaded on {placed(running.load('one')['plan'])}"
            except Refused as refused:
                return title, told + f"`{refused.code}`: {refused.message}"


def _too_much(check: Check, model: Model, first: Path, second: Path) -> Scene:
    """Every start of the first engine takes more than the device has. The daemon must say so and go on serving."""
    title = "an engine that takes more than was planned"
    say(title)
    n_ctx = _tokens_for(model, _GREED * check.memory) or check.ctx
    greedy = greedy_engine(check.engine, check.folder, first, n_ctx, check.address_space)
    models = {"one": check.settings(first), "two": check.settings(second)}
    with daemon(greedy, check.folder / "g.home", models) as running:
        try:
            running.load("one")
            told = f"It loaded all the same, with {n_ctx:,} tokens."
        except Refused as refused:
            told = f"`{refused.code}`: {refused.message}"
        try:
            running.load("two")
            answer = running.complete("two", [_WORD] * 8, 4)
            return title, f"{told} Afterwards the other model answered ({answer['tokens_predicted']} tokens)."
        except Refused as refused:
            return title, f"{told} Afterwards the other model: `{refused.code}`: {refused.message}"


def _tokens_for(model: Model, n_bytes: int) -> int | None:
    """Tokens of context whose cache, in f16, takes so many bytes."""
    per_token = 2 * 2 * model.shape.kv_heads * model.shape.head * model.layers
    tokens = n_bytes // per_token // 256 * 256
    return min(tokens, (1 << 31) - 256) if tokens > 0 else None


def _mib(count: int) -> str:
    return f"{count // MIB:,} MiB"
