"""How near is the foretold speed to llama-server's? Generated models, other ones than those that teach the machine.

    python -m benchmarks.foretold [--quick] [--page] [--json FILE] [--engine PATH] [--threads N]

The machine is measured as `bench` does, then every model of `MODELS` by llama-server itself: prompts, and tokens
behind each. `--quick` leaves the deepest out; `--page` writes docs/speed-accuracy.md. The last line says whether the
goals (median of relative errors at most 15 %, nine in ten at most 35 %, of prompts and of tokens) are met; so does the
exit status. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from supervisor.core.devices.model import HOST
from supervisor.core.launch import LaunchOptions
from supervisor.core.spec import ModelSpec
from supervisor.core.speed.foretell import decode_seconds, prefill_seconds
from supervisor.core.speed.machine import MachineSpeed
from supervisor.errors import EngineStartFailed
from supervisor.llamacpp.program import Program
from supervisor.measuring.calibrate import Calibration, read_model, steady
from supervisor.measuring.maker import Shape, write_model
from supervisor.measuring.timing import Timing, timed_engine
from supervisor.system.cores import physical_cores
from supervisor.system.paths import places

PAGE = Path(__file__).resolve().parents[1] / "docs" / "speed-accuracy.md"
_MEDIAN, _NINE_IN_TEN = 0.15, 0.35
_TOKENS = 24
_NEAR = (16, 256)
_DEEP = 2048
_DEEPEST = 8192


@dataclass(frozen=True, slots=True)
class Model:
    """A model to foretell, and the prompts that it is given."""

    shape: Shape
    prompts: tuple[int, ...] = _NEAR


MODELS = (
    Model(Shape("q4_0", 768, 24, 12, 4, 2560, 8192)),
    Model(Shape("q8_0", 768, 14, 12, 2, 2048, 16000)),
    Model(Shape("q4_K", 1536, 8, 12, 2, 4096, 4096, output_kind="q6_K")),
    Model(Shape("q6_K", 1024, 10, 16, 8, 3072, 8192)),
    Model(Shape("q5_K", 768, 16, 12, 12, 2304, 4096), (*_NEAR, _DEEP)),
    Model(Shape("f16", 640, 12, 10, 5, 2048, 4096)),
    Model(Shape("q4_0", 512, 12, 8, 4, 1024, 4096, experts=16, used=4)),
    Model(Shape("q8_0", 768, 8, 12, 4, 256, 4096, experts=64, used=8)),
    Model(Shape("q4_K", 1024, 6, 16, 4, 768, 4096, experts=24, used=6, output_kind="q6_K")),
    Model(Shape("q8_0", 2048, 2, 32, 8, 8192, 4096)),
    Model(Shape("q4_K", 2560, 3, 20, 4, 6912, 4096, output_kind="q6_K")),
    Model(Shape("q6_K", 512, 32, 8, 2, 2048, 32000)),
    Model(Shape("q8_0", 1024, 8, 8, 1, 2048, 4096), (*_NEAR, _DEEP)),
    Model(Shape("f16", 768, 12, 12, 12, 2048, 4096), (*_NEAR, _DEEP, _DEEPEST)),
    Model(Shape("q4_0", 1024, 12, 16, 2, 3072, 2048), (*_NEAR, _DEEP, _DEEPEST)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: tokens per second, measured and foretold, of a prompt or behind it."""

    model: str
    what: str
    tokens: int
    measured: float
    foretold: float

    @property
    def error(self) -> float:
        """Relative, of the foretold."""
        return self.foretold / self.measured - 1


def named(shape: Shape) -> str:
    """The model in a few words."""
    kind = f"{shape.kind}/{shape.output_kind}" if shape.output_kind else shape.kind
    experts = f", {shape.used} of {shape.experts} experts" if shape.experts else ""
    return f"{kind} {shape.n_embd}×{shape.n_layer}, ff {shape.n_ff}, {shape.n_head}/{shape.n_head_kv} heads{experts}"


async def measured(calibration: Calibration, model: Model, rates: MachineSpeed) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, model.shape, seed=2)
        spec = read_model(path)
        room = max(model.prompts) + 2 * _TOKENS + 256
        options = LaunchOptions(
            ctx_size=room, parallel=1, device=(), threads=calibration.threads, repack=calibration.repack
        )
        rows = []
        engine = timed_engine(
            calibration.binary, calibration.places, calibration.env, path, options, model.shape.n_vocab
        )
        async with engine as bench:
            await bench.time(16, 2)
            for prompt in model.prompts:
                timings = await steady(partial(bench.time, prompt, _TOKENS))
                rows += compared(calibration, spec, rates, named(model.shape), timings)
        return rows


def compared(
    calibration: Calibration, spec: ModelSpec, rates: MachineSpeed, name: str, timings: Sequence[Timing]
) -> list[Row]:
    """The quickest of several answers, which others disturbed least, beside what is foretold."""
    placed = calibration.placed()
    prompt = min(timings, key=lambda one: one.prompt_seconds / one.prompt_tokens)
    tokens = min(timings, key=lambda one: one.token_seconds)
    size = prompt.prompt_tokens
    depth = tokens.prompt_tokens + tokens.passes // 2
    rows = [Row(name, "decode", size, 1 / tokens.token_seconds, 1 / decode_seconds(spec, placed, rates, depth))]
    if size > min(_NEAR):  # so short a prompt says nothing of its speed
        foretold = size / prefill_seconds(spec, placed, rates, size)
        rows.append(Row(name, "prefill", size, size / prompt.prompt_seconds, foretold))
    return rows


async def run(calibration: Calibration, models: Sequence[Model]) -> tuple[list[Row], bool]:
    """All rows, and whether weights were repacked."""
    try:
        rates = MachineSpeed({HOST: await calibration.rates()}, calibration.threads or 1)
    except EngineStartFailed as error:
        if calibration.repack is False:
            raise
        print(f"without repacked weights: {error.message}", file=sys.stderr)
        return await run(replace(calibration, repack=False), models)
    rows = []
    for model in models:
        found = await measured(calibration, model, rates)
        rows += found
        for row in found:
            print(
                row.model, row.what, row.tokens, f"{row.measured:.1f} {row.foretold:.1f} {row.error:+.0%}", flush=True
            )
    return rows, calibration.repack is not False


def errors(rows: Sequence[Row], what: str) -> tuple[float, float]:
    """Median and 90th percentile of the errors' sizes."""
    found = sorted(abs(row.error) for row in rows if row.what == what)
    return statistics.median(found), found[-(-9 * len(found) // 10) - 1]


def page(rows: Sequence[Row], repacked: bool, build: int | None, threads: int) -> str:
    """docs/speed-accuracy.md."""
    lines = [
        "# How accurate the foretold speed is",
        "",
        "Written by `python -m benchmarks.foretold --page`; do not edit.",
        "",
        "The machine was measured as `bench` does. Then models of other shapes, types and depths, none of which had "
        "taught it, were foretold and timed with the real llama-server. Each measured figure is the quickest of "
        "several answers, the two quickest of which are alike.",
        "",
        f"llama.cpp b{build}, {threads} threads on {platform.machine()}, the CPU alone, "
        f"weights {'repacked where llama.cpp does' if repacked else 'not repacked'}.",
        "",
        "| | figures | median error | nine in ten at most |",
        "|---|---|---|---|",
    ]
    for what in ("decode", "prefill"):
        median, most = errors(rows, what)
        count = sum(row.what == what for row in rows)
        lines.append(f"| {what} | {count} | {median:.0%} | {most:.0%} |")
    lines += ["", "| model | what | tokens | measured t/s | foretold t/s | error |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.model} | {row.what} | {row.tokens:,} | {row.measured:.1f} | {row.foretold:.1f} | {row.error:+.0%} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def chosen(quick: bool) -> list[Model]:
    most = _DEEP if quick else _DEEPEST
    return [replace(model, prompts=tuple(size for size in model.prompts if size <= most)) for model in MODELS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="at most 2,048 tokens before")
    parser.add_argument("--page", action="store_true", help="write docs/speed-accuracy.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server")
    parser.add_argument("--threads", type=int, metavar="N", default=physical_cores(), help="default: one per core")
    options = parser.parse_args()
    program = Program(places(os.environ), os.environ, lambda: options.engine)
    found = program.find()
    with tempfile.TemporaryDirectory() as home:
        where = places({**os.environ, "SUPERVISOR_HOME": home})
        calibration = Calibration(found.path, where, dict(os.environ), HOST, options.threads)
        rows, repacked = asyncio.run(run(calibration, chosen(options.quick)))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if options.page:
        PAGE.write_text(page(rows, repacked, found.able.build, options.threads))
    figures = [errors(rows, what) for what in ("decode", "prefill")]
    for what, (median, most) in zip(("decode", "prefill"), figures, strict=True):
        print(f"{what}: median {median:.0%}, nine in ten at most {most:.0%}")
    met = all(median <= _MEDIAN and most <= _NINE_IN_TEN for median, most in figures)
    print(f"goal {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
