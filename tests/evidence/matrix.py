"""Which subject is measured under which settings, and the record of it in `data/`: a line per subject."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.evidence import draw, known_models
from tests.evidence.architectures import DRAWN, fixture
from tests.evidence.measure import Measurement, Server
from tests.evidence.settings import MORE, NEXTN, ONE_DEVICE, TEN, TWO_DEVICES, TWO_DEVICES_EXPERTS, Setting
from tests.evidence.subjects import DATA, KNOWN, TINY, kind_of, read_lines, write_lines, write_subject

BUILD = DATA / "build.json"
ON_TWO_DEVICES = frozenset(
    {"llama-3.1-8b", "gemma-3-27b", "gemma-3n-e4b", "qwen3-30b-a3b", "gpt-oss-120b", "glm-4.6", "deepseek-v3"}
    | {"qwen3-next-80b-a3b", "granite-4-h-small", "mamba2-2.7b", "gemma-4-e4b", "nemotron-nano-9b-v2"}
)


def settings_of(subject: str) -> tuple[Setting, ...]:
    if kind_of(subject) == TINY:
        one = fixture(subject)
        chosen = draw.settings_of(subject, TEN + MORE) if one.size.name in DRAWN else TEN
        return chosen + NEXTN if one.nextn else chosen
    settings = ONE_DEVICE
    if subject in ON_TWO_DEVICES:
        settings += TWO_DEVICES
        if any(key.endswith("expert_count") for key in known_models.BY_NAME[subject].metadata):
            settings += TWO_DEVICES_EXPERTS
    return settings


def run(server: Server, subjects: Iterable[str], settings: Callable[[str], Iterable[Setting]]) -> Iterator[Measurement]:
    """Measures one after the other. Every projection gets workers of its own: a refused graph may end them."""
    with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        for subject in subjects:
            model = write_subject(subject, Path(folder))
            for setting in settings(subject):
                if kind_of(subject) == TINY:
                    yield server.measure(subject, model, setting)
                    continue
                with server.workers(setting.devices) as workers:
                    yield server.project(subject, model, setting, workers)
            model.unlink()


@cache
def recorded() -> tuple[Measurement, ...]:
    """Every measurement on record."""
    return tuple(one for kind in (TINY, KNOWN) for one in measurements_in(DATA / f"{kind}-measurements.jsonl"))


def measurements_in(path: Path) -> Iterator[Measurement]:
    """The measurements of a file."""
    for record in read_lines(path):
        for setting, fields in record["settings"].items():
            yield Measurement.from_json({**fields, "subject": record["subject"], "setting": setting})


def recorded_build() -> str:
    return str(json.loads(BUILD.read_text("utf-8"))["llama-server"])


def save(build: str, measurements: Iterable[Measurement]) -> None:
    """Replaces the record."""
    by_kind = sorted(measurements, key=lambda measurement: kind_of(measurement.subject))  # stable
    for kind, group in groupby(by_kind, lambda measurement: kind_of(measurement.subject)):
        subjects = groupby(group, lambda measurement: measurement.subject)
        write_lines(DATA / f"{kind}-measurements.jsonl", [line_of(subject, list(items)) for subject, items in subjects])
    BUILD.write_text(json.dumps({"llama-server": build}) + "\n", "utf-8")


def line_of(subject: str, measurements: Iterable[Measurement]) -> dict[str, Any]:
    """A line of the record."""
    settings = {measurement.setting: measurement.to_json() for measurement in measurements}
    for fields in settings.values():
        del fields["subject"], fields["setting"]
    return {"subject": subject, "settings": settings}


def differences(old: Iterable[Measurement], new: Iterable[Measurement]) -> Iterator[str]:
    """What changed between two records, a line each."""
    before = {(one.subject, one.setting): one.to_json() for one in old}
    after = {(one.subject, one.setting): one.to_json() for one in new}
    for key in sorted(before.keys() | after.keys()):
        name = f"{key[0]} {key[1]}"
        if key not in before:
            yield f"{name}: new"
        elif key not in after:
            yield f"{name}: gone"
        else:
            fields = sorted(before[key].keys() | after[key].keys())
            changed = [field for field in fields if before[key].get(field) != after[key].get(field)]
            for field in changed:
                yield f"{name}: {field}: {before[key].get(field)} -> {after[key].get(field)}"
