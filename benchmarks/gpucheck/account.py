"""Planned, allocated, held: a load's three accounts side by side, and the pages made of them. Nothing is run here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervisor.core.engine_output.footprint import AccountReader, Footprint, renamed

MIB = 1 << 20
HOST = "CPU"
_ROUNDING = MIB // 200 + 1  # the log's figures have two digits
PARTS = ("weights", "kv", "recurrent", "compute", "output")


@dataclass(frozen=True)
class Row:
    """One part on one device: bytes that were planned, and those in the engine's log."""

    device: str
    part: str
    planned: int
    engine: int

    @property
    def percent(self) -> float | None:
        """The plan's error, 0 within the log's rounding; None where the engine took nothing."""
        if abs(self.planned - self.engine) <= _ROUNDING:
            return 0.0
        return 100 * (self.planned - self.engine) / self.engine if self.engine else None


@dataclass(frozen=True)
class Load:
    """What one load showed; rates are tokens per second. `driver`: bytes of the process by device, where told."""

    model: str
    n_bytes: int
    placed: str
    seconds: float
    rows: tuple[Row, ...]
    driver: Mapping[str, int] = field(default_factory=dict)
    free_change: Mapping[str, int] = field(default_factory=dict)
    prompt_rate: float = 0.0
    answer_rate: float = 0.0


def engine_account(log: Iterable[str], plan: Mapping[str, Any]) -> Footprint | None:
    """The engine's account under the plan's names: an engine that is shown one GPU calls it by number 0."""
    reader = AccountReader()
    for line in log:
        reader.feed(line)
    found = reader.footprint()
    if found is None:
        return None
    theirs = [device.name for device in found.devices if device.name != HOST]
    ours = [part["name"] for part in plan["parts"] if part["name"] != HOST and part["total_bytes"]]
    return renamed(found, dict(zip(theirs, ours, strict=False))) if len(theirs) == len(ours) else found


def compare(plan: Mapping[str, Any], found: Footprint) -> tuple[Row, ...]:
    """Every part that the plan or the engine has, by device."""
    rows = []
    planned = {part["name"]: part for part in plan["parts"]}
    names = [*planned, *(device.name for device in found.devices if device.name not in planned)]
    for name in names:
        for part in PARTS:
            here = planned.get(name, {}).get(f"{part}_bytes", 0)
            there = getattr(found.on(name), f"{part}_bytes")
            if here or there:
                rows.append(Row(name, part, here, there))
    return tuple(rows)


def placed(plan: Mapping[str, Any]) -> str:
    """Where a plan puts a model, in a few words."""
    layers = [f"{part['name']}: {part['layers']} layers" for part in plan["parts"] if part["layers"]]
    experts = [f"experts of {plan['n_cpu_moe']} on the host"] if plan["n_cpu_moe"] else []
    return ", ".join([*layers, *experts]) or "nowhere"


def report(title: str, facts: Mapping[str, str], loads: Sequence[Load], scenes: Sequence[tuple[str, str]]) -> str:
    """The section of docs/gpu-evidence.md for one run."""
    lines = [f"## {title}", ""]
    lines += table(("", ""), list(facts.items()))
    lines += ["", *table(("model", "weights", "placed", "load", "prompt", "answer"), [_speeds(load) for load in loads])]
    rows = [_memory(load, row) for load in loads for row in load.rows]
    lines += ["", *table(("model", "device", "part", "planned MiB", "engine MiB", "difference"), rows)]
    held = [cells for load in loads for cells in _held(load)]
    lines += ["", *table(("model", "device", "engine's account MiB", "driver, process MiB", "free, less MiB"), held)]
    lines += ["", *table(("scene", "what happened"), scenes), ""]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _speeds(load: Load) -> tuple[str, ...]:
    speed = load.n_bytes / MIB / load.seconds if load.seconds else 0.0
    taken = f"{load.seconds:.1f} s ({speed:,.0f} MiB/s)"
    rates = (f"{rate:,.1f} tokens/s" if rate else "-" for rate in (load.prompt_rate, load.answer_rate))
    return (load.model, f"{load.n_bytes / (1 << 30):.2f} GiB", load.placed, taken, *rates)


def _memory(load: Load, row: Row) -> tuple[str, ...]:
    percent = "-" if row.percent is None else f"{row.percent:+.1f} %"
    return (load.model, row.device, row.part, _mib(row.planned), _mib(row.engine), percent)


def _held(load: Load) -> list[tuple[str, ...]]:
    devices = dict.fromkeys([*(row.device for row in load.rows), *load.driver, *load.free_change])
    devices.pop(HOST, None)
    return [
        (
            load.model,
            device,
            _mib(sum(row.engine for row in load.rows if row.device == device)),
            _mib(load.driver[device]) if device in load.driver else "not told",
            _mib(load.free_change[device]) if device in load.free_change else "not told",
        )
        for device in devices
    ]


def _mib(count: int) -> str:
    return f"{count / MIB:,.2f}"
