"""Writes docs/memory-accuracy.md: how near the estimate is to what llama-server logs. Nothing in it is by hand."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from supervisor.core.spec import lookup
from tests.evidence import known_models, matrix
from tests.evidence.architectures import DRAWN, fixture
from tests.evidence.compare import Comparison, Row, compare
from tests.evidence.reasons import ABOVE, REASONS
from tests.evidence.report_backends import sections as backend_sections
from tests.evidence.settings import (
    MORE,
    NEXTN,
    ONE_DEVICE,
    PARTS,
    PARTS_EXPERTS,
    SMALL,
    SMALL_EXPERTS,
    TEN,
    TWO_DEVICES,
    TWO_DEVICES_EXPERTS,
)
from tests.evidence.subjects import DATA, TINY, architecture_of, kind_of, read_lines, tensors_of

EXACT = ("n_ctx", "n_ctx_seq", "n_seq", "cache", "state", "context", "weights", "output")
"""What has to be equal, to the resolution of the log; the compute buffer is a bound."""
MAINSTREAM = frozenset(
    {"llama", "qwen2", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "gemma2", "gemma3", "gpt-oss"}
    | {"deepseek2", "glm4moe", "granitehybrid", "mamba2", "phi3"}
)

INTRODUCTION = """\
# How accurate the memory estimate is

Written by `python -m tests.evidence report`; do not edit. The record behind it is in `tests/evidence/data`.

## Method

Every figure is the estimate for a header and flags, beside the real llama-server's log for the same file and flags.

* **Fixtures**: a tiny model for every architecture that llama.cpp can build from hyper-parameters. These are those of
  its `tests/test-llama-archs.cpp`, as they are (`upstream`) and with more layers, heads and a longer window (`wide`);
  `+experts` and `+nextn` are variants. Most have three more (`1`, `2`, `3`) with random dimensions, each with four
  random settings, all by a seed: they reveal a rule that fits only one shape. llama.cpp itself says which tensors a
  model has; the server loads the file on the CPU.
* **Known models**: published dimensions, in files of a header and a hole. The server's own fit pass computes their
  sizes without allocating them; RPC workers stand for one or two GPUs.
* **Equal** means: to half of the log's last digit (0.01 MiB) for every line of a sum, or to whole MiB if the log has no
  more digits (devices). A projection counts weights on the host without the slack of `mmap`.
* **Back ends**: the same on devices of this machine that are a back end's, in a section of their own each.
* The compute buffer is meant to be a bound: its signed error is shown, estimate over log.

| setting | flags |
|---|---|
"""


def compare_all() -> list[Comparison]:
    return [compare(measurement) for measurement in matrix.recorded()]


def mismatches(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """Where estimate and record differ, one line each; the compute buffer only where it is too small."""
    for one in comparisons:
        name = f"{one.measurement.subject} {one.measurement.setting}"
        if one.verdict in {"not-refused", "wrongly-refused"}:
            yield f"{name}: {one.verdict}: {one.measurement.reason}"
        for row in one.rows:
            if (row.part == "compute" and row.error < -0.01) or (row.part != "compute" and not row.equal):
                place = f"{row.part} {row.where}".strip()
                yield f"{name}: {place}: estimate {row.predicted:.2f}, log {row.logged:.2f}"


def text(comparisons: Sequence[Comparison]) -> str:
    rows = [row for one in comparisons for row in one.rows]
    sections = (
        _settings(),
        _summary(comparisons, rows),
        _families(rows),
        _architectures(comparisons),
        _known(rows),
        _devices(rows),
        *backend_sections(MAINSTREAM),
        _mismatches(comparisons),
        _apart(comparisons),
    )
    return INTRODUCTION + "\n\n".join("\n".join(section) for section in sections) + "\n"


def _settings() -> Iterator[str]:
    kinds = (TEN, "fixtures"), (MORE, "drawn fixtures"), (NEXTN, "+nextn"), (ONE_DEVICE, "known models")
    devices = (TWO_DEVICES, "two devices"), (TWO_DEVICES_EXPERTS, "two devices, experts")
    more = (PARTS, "back ends"), (PARTS_EXPERTS, "back ends, experts")
    small = (SMALL, "fixtures, back ends"), (SMALL_EXPERTS, "fixtures, back ends, experts")
    for settings, kind in (*kinds, *devices, *more, *small):
        for setting in settings:
            yield f"| {setting.name} ({kind}) | `{setting.flags}` |"


def _summary(comparisons: Sequence[Comparison], rows: Sequence[Row]) -> Iterator[str]:
    verdicts = Counter(one.verdict for one in comparisons)
    subjects = {one.measurement.subject for one in comparisons}
    fixtures = {subject for subject in subjects if kind_of(subject) == TINY}
    yield "## Summary"
    yield ""
    yield f"llama-server {matrix.recorded_build()}."
    yield f"{len(comparisons)} starts of {len(fixtures)} fixtures of {len({architecture_of(s) for s in fixtures})}"
    yield f"architectures and of {len(subjects - fixtures)} known models."
    yield ""
    yield "| | equal | of | |"
    yield "|---|---|---|---|"
    for part in EXACT:
        chosen = [row for row in rows if row.part == part]
        equal = sum(row.equal for row in chosen)
        yield f"| {_PARTS[part]} | {equal} | {len(chosen)} | {_share(equal, len(chosen))} |"
    both, all_refused = verdicts["refused"], verdicts["refused"] + verdicts["not-refused"] + verdicts["wrongly-refused"]
    yield f"| refusals | {both} | {all_refused} | {_share(both, all_refused)} |"
    errors = sorted(row.error for row in rows if row.part == "compute" and row.logged)
    if errors:
        under = sum(error < -0.01 for error in errors)
        yield ""
        yield f"Compute buffer, {len(errors)} figures: {under} more than 1 % too small; error p10 {_p(errors, 0.1)},"
        yield f"median {_p(errors, 0.5)}, p90 {_p(errors, 0.9)}, largest {errors[-1]:+.1%}."
        drawn = sorted(row.error for row in rows if row.part == "compute" and row.logged and _is_drawn(row.subject))
        under = sum(error < -0.01 for error in drawn)
        yield f"Of fixtures whose dimensions are drawn, {len(drawn)} figures: {under} more than 1 % too small; error"
        yield f"p10 {_p(drawn, 0.1)}, median {_p(drawn, 0.5)}, p90 {_p(drawn, 0.9)}, largest {drawn[-1]:+.1%}."


_PARTS = {
    "n_ctx": "context",
    "n_ctx_seq": "context of a slot",
    "n_seq": "slots",
    "cache": "KV cache",
    "state": "recurrent and compressor state",
    "context": "cache and state by device",
    "weights": "weights by device",
    "output": "output buffer",
}


def _is_drawn(subject: str) -> bool:
    return kind_of(subject) == TINY and fixture(subject).size.name in DRAWN


def _families(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Compute buffer by family"
    yield ""
    yield "Signed error, estimate over log. Mainstream families first, by architecture; then by layout."
    yield ""
    yield "| family | figures | smallest | median | p90 | largest | reason where above +50 % |"
    yield "|---|---|---|---|---|---|---|"
    groups: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.part == "compute" and row.logged:
            architecture = architecture_of(row.subject)
            mainstream = architecture in MAINSTREAM
            family = architecture if mainstream else f"other {lookup(architecture).layout.value}"
            groups[0 if mainstream else 1, family].append(row.error)
    for (_, family), errors in sorted(groups.items()):
        errors.sort()
        figures = f"{errors[0]:+.1%} | {_p(errors, 0.5)} | {_p(errors, 0.9)} | {errors[-1]:+.1%}"
        reason = ABOVE.get(family, "unknown") if errors[-1] > 0.5 else ""
        yield f"| {family} | {len(errors)} | {figures} | {reason} |"


def _architectures(comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield "## By architecture"
    yield ""
    yield "Fixtures only. Cache, state, weights, output: equal/compared. Compute: signed error."
    yield ""
    yield "| architecture | layout | starts | cache | state | weights | output | compute: smallest, median, largest |"
    yield "|---|---|---|---|---|---|---|---|"
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for one in comparisons:
        if kind_of(one.measurement.subject) == TINY:
            groups[architecture_of(one.measurement.subject)].append(one)
    for architecture, group in sorted(groups.items()):
        rows = [row for one in group for row in one.rows]
        counts = " | ".join(_equal(rows, part) for part in ("cache", "state", "weights", "output"))
        errors = sorted(row.error for row in rows if row.part == "compute" and row.logged)
        compute = f"{errors[0]:+.1%}, {_p(errors, 0.5)}, {errors[-1]:+.1%}" if errors else "–"
        yield f"| {architecture} | {lookup(architecture).layout.value} | {len(group)} | {counts} | {compute} |"


def _known(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Known models"
    yield ""
    yield "One device, everything on it; MiB, estimate / log. Parameters are counted from the tensors."
    yield ""
    yield "| model | parameters | setting | weights | cache and state | compute |"
    yield "|---|---|---|---|---|---|"
    for model in known_models.MODELS:
        parameters = f"{_parameters(model.name):.1f} B"
        for setting in ("8k", "32k", "8k-auto", "8k-ub2048", "8k-faoff"):
            chosen = {row.part: row for row in rows if _is(row, model.name, setting, "RPC0")}
            if chosen:
                cells = " | ".join(_beside(chosen[part]) for part in ("weights", "context", "compute"))
                yield f"| {model.name} | {parameters} | {setting} | {cells} |"


def _devices(rows: Sequence[Row]) -> Iterator[str]:
    settings = [setting.name for setting in (*TWO_DEVICES, *TWO_DEVICES_EXPERTS)]
    yield "## Two devices"
    yield ""
    yield "MiB by device, estimate / log."
    yield ""
    yield "| model | setting | part | device 0 | device 1 | host |"
    yield "|---|---|---|---|---|---|"
    for model in known_models.MODELS:
        for setting in settings:
            for part in ("weights", "context", "compute"):
                found = {row.where: row for row in rows if _is(row, model.name, setting, part=part)}
                if found:
                    cells = " | ".join(_beside(found[name]) if name in found else "–" for name in _PLACES)
                    yield f"| {model.name} | {setting} | {part} | {cells} |"


_PLACES = ("RPC0", "RPC1", "CPU")


def _mismatches(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """By architecture and part, since one reason makes many lines."""
    yield "## Mismatches"
    yield ""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in comparisons:
        for line in mismatches([one]):
            part = line.split(": ")[1].split(" ")[0]
            groups[architecture_of(one.measurement.subject), part].append(line)
    if not groups:
        yield "None."
        return
    yield "| architecture | part | cases | reason | the first |"
    yield "|---|---|---|---|---|"
    for (architecture, part), lines in sorted(groups.items()):
        reason = REASONS.get((part, architecture), "unknown")
        yield f"| {architecture} | {part} | {len(lines)} | {reason} | {lines[0]} |"


def _apart(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What cannot be compared, or not in full."""
    yield "## Counted apart"
    yield ""
    yield "Starts that the server refused or that crashed; caches that it had logged by then are compared."
    yield ""
    yield "| subject | outcome | verdict | settings | what the server says |"
    yield "|---|---|---|---|---|"
    groups: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for one in comparisons:
        measurement = one.measurement
        if measurement.outcome in {"refused", "crashed"}:
            key = (measurement.subject, measurement.outcome, one.verdict, measurement.reason.replace("|", "\\|"))
            groups[key].append(measurement.setting)
    for (subject, outcome, verdict, reason), settings in groups.items():
        yield f"| {subject} | {outcome} | {verdict} | {', '.join(settings)} | `{reason}` |"
    yield ""
    yield "Fixtures that llama.cpp does not build:"
    yield ""
    for record in read_lines(DATA / "not-made.jsonl"):
        yield f"* {record['subject']}: {record['reason']}"


def _equal(rows: Iterable[Row], part: str) -> str:
    chosen = [row.equal for row in rows if row.part == part]
    return f"{sum(chosen)}/{len(chosen)}" if chosen else "–"


def _is(row: Row, subject: str, setting: str, where: str = "", part: str = "") -> bool:
    matches = row.where == where if where else bool(row.where)
    return matches and row.subject == subject and row.setting == setting and part in {"", row.part}


def _beside(row: Row) -> str:
    digits = 2 if row.part == "compute" else 0
    return f"{row.predicted:.{digits}f} / {row.logged:.{digits}f}"


def _parameters(subject: str) -> float:
    """In billions."""
    return sum(math.prod(tensor.shape) for tensor in tensors_of(subject)) / 1e9


def _p(ordered: Sequence[float], share: float) -> str:
    """A percentile of sorted errors."""
    return f"{ordered[min(int(len(ordered) * share), len(ordered) - 1)]:+.1%}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "–"
