"""Everything that is measured, by name: `llama/wide` is a fixture, `llama-3.1-8b` a known model.

Which tensors each has is recorded in `data/`, one line per subject, so that files are made without llama.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.evidence import known_models
from tests.evidence.architectures import Metadata, fixture, metadata
from tests.evidence.make import Tensor, write_model

DATA = Path(__file__).parent / "data"
TINY, KNOWN = "tiny", "known"

_NUMBERED = re.compile(r"^((?:enc\.|dec\.)?blk)\.([\d,-]+)\.(.+)$")


def kind_of(name: str) -> str:
    return TINY if "/" in name else KNOWN


def architecture_of(name: str) -> str:
    if kind_of(name) == TINY:
        return fixture(name).architecture
    return str(known_models.BY_NAME[name].metadata["general.architecture"])


def metadata_of(name: str) -> Metadata:
    return metadata(fixture(name)) if kind_of(name) == TINY else known_models.BY_NAME[name].metadata


def tensors_of(name: str) -> list[Tensor]:
    """As recorded, block after block as in converted files; fixtures are F32 throughout."""
    tensors = sorted(unpack_tensors(recorded_tensors(kind_of(name))[name]), key=_block)
    return tensors if kind_of(name) == TINY else list(known_models.BY_NAME[name].tensors(tensors))


def write_subject(name: str, folder: Path) -> Path:
    """Its file: a header of the real thing, and a hole for the data."""
    path = folder / f"{name.replace('/', '-')}.gguf"
    write_model(path, metadata_of(name), tensors_of(name))
    return path


@cache
def recorded_tensors(kind: str) -> Mapping[str, Mapping[str, list[int]]]:
    return {record["subject"]: record["tensors"] for record in read_lines(DATA / f"{kind}-tensors.jsonl")}


def recorded_subjects() -> list[str]:
    return [*recorded_tensors(TINY), *recorded_tensors(KNOWN)]


def pack_tensors(name: str, tensors: Iterable[tuple[str, list[int]]]) -> dict[str, list[int]]:
    """`blk.0-7.attn_q.weight` for eight tensors of one shape. Those that the model's files lack are left out."""
    found: dict[str, list[int]] = {}
    layers: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    for tensor, shape in tensors:
        if not _belongs(name, tensor):
            continue
        if match := _NUMBERED.match(tensor):
            layers.setdefault((match[1], match[3], tuple(shape)), []).append(int(match[2]))
        else:
            found[tensor] = shape
    for (prefix, rest, dimensions), numbers in layers.items():
        found[f"{prefix}.{_ranges(numbers)}.{rest}"] = list(dimensions)
    return found


def unpack_tensors(packed: Mapping[str, list[int]]) -> Iterator[Tensor]:
    for name, shape in packed.items():
        match = _NUMBERED.match(name)
        if not match:
            yield Tensor(name, tuple(shape))
            continue
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            for layer in range(int(first), int(last or first) + 1):
                yield Tensor(f"{match[1]}.{layer}.{match[3]}", tuple(shape))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            yield json.loads(line)


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _block(tensor: Tensor) -> int:
    match = _NUMBERED.match(tensor.name)
    return int(match[2]) if match else -1


def _belongs(name: str, tensor: str) -> bool:
    """llama.cpp knows scales for every matrix; only files in NVFP4 have them."""
    if tensor.endswith("scale"):
        return False
    return kind_of(name) == TINY or known_models.BY_NAME[name].keeps(tensor)


def _ranges(numbers: list[int]) -> str:
    """0,1,2,5 -> `0-2,5`."""
    parts = []
    for _, group in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)
