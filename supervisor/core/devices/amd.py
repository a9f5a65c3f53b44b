"""Read the GPUs from AMD's tools: the JSON of `amd-smi static --asic --bus --vram` and of `rocm-smi`.

They know the names that the kernel does not, and are the only source where `/sys` cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from supervisor.core.devices.physical import AMD, Gpu, normal_pci
from supervisor.core.text.foreignjson import parse

AMD_SMI = ("static", "--asic", "--bus", "--vram", "--json")
ROCM_SMI = ("--showproductname", "--showbus", "--showuniqueid", "--showmeminfo", "vram", "--json")

_MIB = 1 << 20
_HEXADECIMAL = re.compile(r"(?:0x)?([0-9a-fA-F]{8,16})$")


def parse_amd_smi(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in the output of `amd-smi`. Newer versions wrap the list in `gpu_data`.

    Raise ValueError if it is no JSON.
    """
    value = parse(text)
    if isinstance(value, Mapping):
        value = value.get("gpu_data")
    entries = value if isinstance(value, list) else []
    return _numbered(_from_amd_smi(one) for one in entries if isinstance(one, Mapping))


def parse_rocm_smi(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in the output of `rocm-smi`, whose keys differ in case between versions.

    Raise ValueError if it is no JSON.
    """
    value = parse(text)
    cards = value.items() if isinstance(value, Mapping) else ()
    return _numbered(
        _from_rocm_smi({key.lower(): text for key, text in facts.items()})
        for card, facts in cards
        if card.startswith("card") and isinstance(facts, Mapping)
    )


def with_names(gpus: Sequence[Gpu], named: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return the kernel's GPUs with the tools' names, matched by PCI address; without any, the tools' own GPUs."""
    tools = tuple(named)
    if not gpus:
        return tools
    names = {gpu.pci: gpu.name for gpu in tools if gpu.pci}
    return tuple(replace(gpu, name=names.get(gpu.pci or "", gpu.name)) for gpu in gpus)


def _from_amd_smi(facts: Mapping[str, object]) -> Gpu:
    asic, bus, vram = (_mapping(facts.get(key)) for key in ("asic", "bus", "vram"))
    size = vram.get("size")
    mebibytes = _mapping(size).get("value") if isinstance(size, Mapping) else size
    return Gpu(
        vendor=AMD,
        index=0,
        name=str(asic.get("market_name") or "AMD GPU"),
        total_bytes=mebibytes * _MIB if isinstance(mebibytes, int) else None,
        pci=normal_pci(_text(bus.get("bdf"))),
        uuid=_unique(asic.get("asic_serial")),
    )


def _from_rocm_smi(facts: Mapping[str, object]) -> Gpu:
    total, used = _count(facts.get("vram total memory (b)")), _count(facts.get("vram total used memory (b)"))
    return Gpu(
        vendor=AMD,
        index=0,
        name=str(facts.get("card series") or facts.get("device name") or "AMD GPU"),
        total_bytes=total,
        free_bytes=max(0, total - used) if total is not None and used is not None else None,
        pci=normal_pci(_text(facts.get("pci bus"))),
        uuid=_unique(facts.get("unique id")),
    )


def _numbered(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    ordered = sorted(gpus, key=lambda gpu: gpu.pci or "~")
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(ordered))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return int(str(value)) if str(value).isdigit() else None


def _unique(value: object) -> str | None:
    found = _HEXADECIMAL.match(str(value))
    return f"GPU-{found[1].lower()}" if found else None
