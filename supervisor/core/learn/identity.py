"""Identify what makes two starts of an engine comparable: the model, the options, the devices, the program.

Each is a short text that stays the same while what it stands for does; they are keys of the store, so their making may
only change together with a new prefix here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from supervisor.core.gguf import ArraySummary, GgufHeader
from supervisor.core.memory import EstimateOptions

Settings: TypeAlias = Mapping[str, object]
"""Everything of a start that decides memory, as plain JSON."""

_LENGTH = 32
_DIGITS = "0123456789"
_AT_ONCE = 2048  # rows that are written in one step


@dataclass(frozen=True, slots=True)
class Start:
    """A way of starting one model.

    Attributes:
        model: `model_identity`.
        options: `options_hash` of `settings`.
        settings: what `plain_settings` made.
        engine: hash of the program and its libraries.
        backend: `backend_of` the devices.
        devices: what the devices are (`NVIDIA H200`, an RPC worker's address), in the order of their names; empty
            where that is not known.
        build: the engine's build number; None where it says none, or 0.
    """

    model: str
    options: str
    settings: Settings
    engine: str
    backend: str
    devices: tuple[str, ...] = ()
    build: int | None = None


def model_identity(header: GgufHeader) -> str:
    """Return a text that is the same for every copy of a model, split or whole, and differs between quantisations.

    Made of the name, the architecture's keys and the table of tensors (name, shape, type), not of the weights: a file
    whose weights were replaced in place takes the same memory.
    """
    prefix = f"{header.architecture}."
    keys = [(key, _plain(value)) for key, value in sorted(header.metadata.items()) if key.startswith(prefix)]
    tensors = sorted((tensor.name, tensor.shape, tensor.type) for tensor in header.tensors)
    return _hash_of_rows([header.architecture, header.name], keys, tensors)


def plain_settings(
    options: EstimateOptions, *, split_mode: str = "layer", main_gpu: int = 0, extra: Iterable[str] = ()
) -> Settings:
    """Return the settings of a start.

    `extra` holds arguments and variables beside the options that may decide memory.
    """
    found = {**asdict(options), "split_mode": split_mode, "main_gpu": main_gpu, "extra": list(extra)}
    plain: Settings = json.loads(json.dumps(found))  # tuples become lists, as when they come back from the store
    return plain


def options_hash(settings: Settings) -> str:
    """Return the hash of settings, whatever their order."""
    return _hash(settings)


def backend_of(devices: Iterable[str]) -> str:
    """Return the back end of devices: `cuda` for `CUDA0` and `CUDA1`; several sorted, joined by commas.

    `cpu` for none.
    """
    kinds = sorted({kind_of(name).lower() for name in devices})
    return ",".join(kinds) or "cpu"


def kind_of(device: str) -> str:
    """Return a device's name without its number, and without the endpoint behind that: `RPC0[host:port]` is RPC.

    So is `NAME/DEVICE`, a device of a worker that has joined.
    """
    if "/" in device and "[" not in device:
        return "RPC"
    name = device.partition("[")[0] if device.endswith("]") else device
    kind = name.rstrip(_DIGITS)
    return kind if kind != name else device


def _plain(value: object) -> object:
    return [value.type, value.length] if isinstance(value, ArraySummary) else value


def _hash(value: object) -> str:
    return hashlib.sha256(_text(value)).hexdigest()[:_LENGTH]


def _hash_of_rows(head: list[object], *tables: Sequence[object]) -> str:
    """Return `_hash([*head, *tables])`. The tables are written in pieces: one step keeps all other threads waiting."""
    digest = hashlib.sha256(_text(head)[:-1])
    for rows in tables:
        for first in range(0, len(rows) or 1, _AT_ONCE):
            digest.update((b"," if first else b",[") + _text(rows[first : first + _AT_ONCE])[1:-1])
        digest.update(b"]")
    digest.update(b"]")
    return digest.hexdigest()[:_LENGTH]


def _text(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=True)
    return text.encode("utf-8", "surrogatepass")
