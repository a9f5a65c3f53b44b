"""Measurements on the devices of a back end, such as Vulkan's, and the record of them: a file for each back end.

Every start is a projection (`Server.project_on`): nothing is allocated, so that models of any size are measured on any
device. The name of a back end is the program's own: `vulkan`, `cuda`, `metal`, …

Vulkan has a device without a GPU too: Mesa's software driver, which llama.cpp uses where
GGML_VK_VISIBLE_DEVICES=0,0,0 names it, here three times. It takes tensors of 128 MiB at most; `vulkan_limits.c` says
how to measure with the limits of a GPU.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.evidence import known_models
from tests.evidence.architectures import fixture
from tests.evidence.matrix import ON_TWO_DEVICES, line_of, measurements_in
from tests.evidence.measure import Measurement, Server
from tests.evidence.settings import (
    ONE_DEVICE,
    PARTS,
    PARTS_EXPERTS,
    SMALL,
    SMALL_EXPERTS,
    TWO_DEVICES,
    TWO_DEVICES_EXPERTS,
    Setting,
)
from tests.evidence.subjects import DATA, TINY, kind_of, recorded_subjects, write_lines, write_subject

_REFUSING = frozenset({"mamba-2.8b", "jamba-reasoning-3b"})  # with nodes that Vulkan leaves to the host
_SUFFIX = "-measurements.jsonl"
_FOLDER = DATA / "backends"


def recorded_backends() -> list[str]:
    """Names of the back ends on record."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in _FOLDER.glob(f"*{_SUFFIX}"))


@cache
def recorded(backend: str) -> tuple[Measurement, ...]:
    """Every measurement on record for a back end."""
    return tuple(measurements_in(_FOLDER / f"{backend}{_SUFFIX}"))


def about(backend: str) -> dict[str, str]:
    """What measured it: the engine's build and the device."""
    found: dict[str, str] = json.loads((_FOLDER / f"{backend}.json").read_text("utf-8"))
    return found


def subjects() -> list[str]:
    """Known models, and the fixtures of more layers and heads."""
    return [name for name in recorded_subjects() if kind_of(name) != TINY or name.endswith("/wide")]


def settings_of(subject: str, n_devices: int) -> Iterator[Setting]:
    """Settings for so many devices."""
    small = kind_of(subject) == TINY
    chosen = list(SMALL) if small else [setting for setting in ONE_DEVICE if setting.devices]
    experts = fixture(subject).experts if small else _has_experts(subject)
    if small and experts:
        chosen += SMALL_EXPERTS
    elif not small:
        chosen += [setting for setting in PARTS if setting.devices == 1]
        if experts:
            chosen += PARTS_EXPERTS
        if subject in ON_TWO_DEVICES | _REFUSING:
            chosen += [
                *TWO_DEVICES,
                *(setting for setting in PARTS if setting.devices > 1),
                *(TWO_DEVICES_EXPERTS if experts else ()),
            ]
    return (setting for setting in chosen if setting.devices <= n_devices)


def run(server: Server, backend: str, chosen: Iterable[str]) -> Iterator[Measurement]:
    """Measures one after the other, on as many devices as there are."""
    devices = list(server.devices(backend))
    with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        for subject in chosen:
            model = write_subject(subject, Path(folder))
            for setting in settings_of(subject, len(devices)):
                yield server.project_on(subject, model, setting, devices)
            model.unlink()


def save(backend: str, server: Server, measurements: Sequence[Measurement]) -> None:
    """Replaces the record of a back end."""
    by_subject: dict[str, list[Measurement]] = {}
    for one in measurements:
        by_subject.setdefault(one.subject, []).append(one)
    lines = [line_of(name, by_subject[name]) for name in recorded_subjects() if name in by_subject]
    write_lines(_FOLDER / f"{backend}{_SUFFIX}", lines)
    description = next(iter(server.devices(backend).values()))
    text = json.dumps({"llama-server": server.build(), "device": description})
    (_FOLDER / f"{backend}.json").write_text(text + "\n", "utf-8")


def _has_experts(subject: str) -> bool:
    return any(key.endswith("expert_count") for key in known_models.BY_NAME[subject].metadata)
