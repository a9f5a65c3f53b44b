"""The recorded truth: which tensors every fixture has, and what the server logged for it under every setting.

Both are files of JSON lines beside this module, one line per fixture, so that a new build's differences are readable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.evidence.architectures import Fixture, fixture, metadata
from tests.evidence.make import Tensor, write_model
from tests.evidence.measure import Measurement

DATA = Path(__file__).parent / "data"
TENSORS = DATA / "tensors.jsonl"
MEASUREMENTS = DATA / "measurements.jsonl"

_BLOCK = re.compile(r"^(blk|enc\.blk|dec\.blk)\.(\d+)\.(.+)$")


def pack_tensors(tensors: Iterable[tuple[str, list[int]]]) -> dict[str, list[int]]:
    """`blk.0-7.attn_q.weight` for eight tensors of one shape. The scales of NVFP4 files are left out."""
    found: dict[str, list[int]] = {}
    layers: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    for name, shape in tensors:
        if name.endswith("scale"):
            continue
        if match := _BLOCK.match(name):
            layers.setdefault((match[1], match[3], tuple(shape)), []).append(int(match[2]))
        else:
            found[name] = shape
    for (prefix, rest, dimensions), numbers in layers.items():
        found[f"{prefix}.{_ranges(numbers)}.{rest}"] = list(dimensions)
    return found


def unpack_tensors(packed: Mapping[str, list[int]]) -> Iterator[Tensor]:
    for name, shape in packed.items():
        match = re.match(r"^(blk|enc\.blk|dec\.blk)\.([\d,-]+)\.(.+)$", name)
        if not match:
            yield Tensor(name, tuple(shape))
            continue
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            for layer in range(int(first), int(last or first) + 1):
                yield Tensor(f"{match[1]}.{layer}.{match[3]}", tuple(shape))


def _ranges(numbers: list[int]) -> str:
    """0,1,2,5 -> `0-2,5`."""
    parts = []
    for _, group in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)


@cache
def recorded_tensors() -> Mapping[str, Mapping[str, list[int]]]:
    """Of every fixture that llama.cpp can build, by name."""
    return {record["fixture"]: record["tensors"] for record in read_lines(TENSORS)}


@cache
def recorded_measurements() -> tuple[Measurement, ...]:
    return tuple(
        Measurement.from_json({"subject": record["subject"], **fields, "setting": setting})
        for record in read_lines(MEASUREMENTS)
        for setting, fields in record["settings"].items()
    )


def write_fixture(subject: Fixture, folder: Path) -> Path:
    """The fixture's file, with the recorded tensors."""
    path = folder / f"{subject.name.replace('/', '-')}.gguf"
    write_model(path, metadata(subject), unpack_tensors(recorded_tensors()[subject.name]))
    return path


def recorded_fixtures() -> list[Fixture]:
    return [fixture(name) for name in recorded_tensors()]


def save_measurements(measurements: Iterable[Measurement], path: Path = MEASUREMENTS) -> None:
    lines = []
    for subject, group in groupby(measurements, lambda measurement: measurement.subject):
        settings: dict[str, Any] = {}
        for measurement in group:
            record = measurement.to_json()
            settings[measurement.setting] = {k: v for k, v in record.items() if k not in {"subject", "setting"}}
        lines.append({"subject": subject, "settings": settings})
    write_lines(path, lines)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            yield json.loads(line)


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
