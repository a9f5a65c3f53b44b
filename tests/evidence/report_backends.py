"""The part of docs/memory-accuracy.md about devices of a back end, one for each on record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from supervisor.core.spec import lookup
from tests.evidence import backends, known_models
from tests.evidence.compare import Comparison, Row, compare
from tests.evidence.settings import ONE_DEVICE, PARTS, PARTS_EXPERTS, TWO_DEVICES, TWO_DEVICES_EXPERTS
from tests.evidence.subjects import TINY, architecture_of, kind_of

EXACT = ("n_ctx", "cache", "state", "weights", "context")
APART = {
    "t5": "its decoder's graph has inputs of the encoder's length and a bias for each layer, which are not counted"
}
"""Architectures whose compute buffer may be above the estimate, and why."""
_SETTINGS = (
    *(setting.name for setting in ONE_DEVICE if setting.devices),
    *(setting.name for setting in (*PARTS, *PARTS_EXPERTS, *TWO_DEVICES, *TWO_DEVICES_EXPERTS)),
)


def comparisons(backend: str) -> list[Comparison]:
    """Every measurement of a back end beside the estimate for it."""
    return [compare(measurement, backend) for measurement in backends.recorded(backend)]


def compute_rows(found: Sequence[Comparison]) -> list[Row]:
    """The figures of compute buffers, those apart left out."""
    rows = [row for one in found for row in one.rows if row.part == "compute" and row.logged]
    return [row for row in rows if architecture_of(row.subject) not in APART]


def sections(mainstream: frozenset[str]) -> Iterator[Iterator[str]]:
    """The sections of every back end on record."""
    for backend in backends.recorded_backends():
        found = comparisons(backend)
        yield _summary(backend, found)
        yield _families(backend, found, mainstream)
        yield _known(backend, found)


def _summary(backend: str, found: Sequence[Comparison]) -> Iterator[str]:
    about = backends.about(backend)
    rows = [row for one in found for row in one.rows]
    subjects = {one.measurement.subject for one in found}
    fixtures = sum(kind_of(subject) == TINY for subject in subjects)
    yield f"## Devices of {backend}"
    yield ""
    yield f"llama-server {about['llama-server']};"
    yield f"{about['device']}; the engine's own projection, which allocates nothing."
    yield f"{len(found)} starts of {fixtures} fixtures and {len(subjects) - fixtures} known models on one to"
    yield "three devices. Where the device is Mesa's software driver, tensors of up to 4 GiB are allowed as on a GPU"
    yield "(`tests/evidence/vulkan_limits.c`)."
    yield ""
    yield "| | equal | of |"
    yield "|---|---|---|"
    for part in EXACT:
        chosen = [row.equal for row in rows if row.part == part]
        yield f"| {_PARTS[part]} | {sum(chosen)} | {len(chosen)} |"
    yield ""
    yield f"Compute buffers, {_distribution(compute_rows(found))}."
    for name, reason in APART.items():
        apart = [row.error for row in rows if row.part == "compute" and architecture_of(row.subject) == name]
        if apart:
            yield f"Apart: {name}, {len(apart)} figures from {min(apart):+.1%} to {max(apart):+.1%}:"
            yield f"{reason}."


_PARTS = {
    "n_ctx": "context",
    "cache": "KV cache",
    "state": "recurrent and compressor state",
    "weights": "weights by device",
    "context": "cache and state by device",
}


def _distribution(rows: Sequence[Row]) -> str:
    errors = sorted(row.error for row in rows)
    under = sum(error < -0.01 for error in errors)
    shares = ", ".join(f"{name} {_p(errors, share)}" for name, share in (("p10", 0.1), ("median", 0.5), ("p90", 0.9)))
    return f"{len(errors)} figures: {under} more than 1 % too small; error {shares}, largest {errors[-1]:+.1%}"


def _families(backend: str, found: Sequence[Comparison], mainstream: frozenset[str]) -> Iterator[str]:
    yield f"### Compute buffers on {backend} by family"
    yield ""
    yield "| family | figures | smallest | median | p90 | largest |"
    yield "|---|---|---|---|---|---|"
    groups: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for row in compute_rows(found):
        name = architecture_of(row.subject)
        known = name in mainstream
        groups[not known, name if known else f"other {lookup(name).layout.value}"].append(row.error)
    for (_, family), errors in sorted(groups.items()):
        errors.sort()
        figures = f"{errors[0]:+.1%} | {_p(errors, 0.5)} | {_p(errors, 0.9)} | {errors[-1]:+.1%}"
        yield f"| {family} | {len(errors)} | {figures} |"


def _known(backend: str, found: Sequence[Comparison]) -> Iterator[str]:
    yield f"### Known models on {backend}"
    yield ""
    yield "Compute buffers by device, MiB, estimate / log; settings as above."
    yield ""
    yield "| model | setting | device 0 | device 1 | device 2 | host |"
    yield "|---|---|---|---|---|---|"
    by_start = {(one.measurement.subject, one.measurement.setting): one for one in found}
    for model in known_models.MODELS:
        for setting in _SETTINGS:
            one = by_start.get((model.name, setting))
            if one is not None:
                yield f"| {model.name} | {setting} | {' | '.join(_cells(one))} |"


def _cells(one: Comparison) -> list[str]:
    sizes = {row.where[-1]: f"{row.predicted:.0f} / {row.logged:.0f}" for row in one.rows if row.part == "compute"}
    return [sizes.get(place, "–") for place in ("0", "1", "2", "U")]  # CPU is the host


def _p(ordered: Sequence[float], share: float) -> str:
    return f"{ordered[min(int(len(ordered) * share), len(ordered) - 1)]:+.1%}"
