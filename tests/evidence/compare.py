"""Sets the estimate beside the record: the same header, the same flags, part by part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from supervisor.core.gguf import read_header
from supervisor.core.memory import EstimateOptions, MemoryEstimate, Refusal, estimate
from supervisor.core.spec import ModelSpec, read_spec
from tests.evidence.measure import Measurement
from tests.evidence.settings import EVERY, UNMAPPED, Setting
from tests.evidence.subjects import write_subject

MIB = float(1 << 20)
HOST = "CPU"
RPC = "rpc"
PREFIXES = {RPC: "RPC", "vulkan": "Vulkan", "cuda": "CUDA", "hip": "ROCm", "metal": "MTL"}
"""What llama.cpp calls the devices of a back end."""
ROUNDING = 0.005 + 1e-6  # a line of the log may be off by half of its last digit
WHOLE = 1.0  # the breakdown of a projection has whole MiB, rounded down


@dataclass(frozen=True)
class Row:
    """One part of one start. `where` is a device, or empty for all of them."""

    subject: str
    setting: str
    part: str
    where: str
    predicted: float
    logged: float
    tolerance: float

    @property
    def equal(self) -> bool:
        return abs(self.predicted - self.logged) <= self.tolerance

    @property
    def error(self) -> float:
        """Signed, as a share of what the server allocates."""
        return self.predicted / self.logged - 1 if self.logged else 0.0


@dataclass(frozen=True)
class Comparison:
    """A measurement and what the estimate said.

    `verdict`: `compared`; `refused`: both refuse; `not-refused`, `wrongly-refused`: one of them does; `unknown`: the
    server crashed before it named a cache.
    """

    measurement: Measurement
    verdict: str
    rows: tuple[Row, ...] = ()


@cache
def spec_of(subject: str) -> ModelSpec:
    with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        path = write_subject(subject, Path(folder))
        with path.open("rb") as file:
            return read_spec(read_header(file, path.stat().st_size))


def options_of(setting: Setting, backend: str = RPC) -> EstimateOptions:
    """The setting's flags, as the estimate wants them."""
    names = tuple(f"{PREFIXES[backend]}{number}" for number in range(setting.devices))
    found: dict[str, object] = {"devices": names, "backend": "" if backend == RPC else backend}
    flags = list(setting.arguments)
    while flags:
        flag = flags.pop(0)
        if flag == UNMAPPED.split()[0]:
            flags.pop(0)  # how weights are read changes nothing
        elif flag in _SWITCHES:
            field, on = _SWITCHES[flag]
            found[field] = on
        else:
            field, read = _VALUES[flag]
            found[field] = read(flags.pop(0))
    return EstimateOptions(**found)  # type: ignore[arg-type]  # the tables above name fields and read their types


_SWITCHES: dict[str, tuple[str, bool]] = {
    "-kvu": ("kv_unified", True),
    "--swa-full": ("swa_full", True),
    "-cmoe": ("cpu_moe", True),
    "-nkvo": ("offload_kv", False),
    "--no-op-offload": ("op_offload", False),
}
_VALUES: dict[str, tuple[str, Callable[[str], object]]] = {
    "-c": ("ctx_size", int),
    "-np": ("parallel", int),
    "-b": ("batch_size", int),
    "-ub": ("ubatch_size", int),
    "-ctk": ("cache_type_k", str),
    "-ctv": ("cache_type_v", str),
    "-fa": ("flash_attn", str),
    "-ts": ("tensor_split", lambda shares: tuple(float(share) for share in shares.split(","))),
    "-ngl": ("n_gpu_layers", int),
    "-ncmoe": ("n_cpu_moe", int),
    "--spec-type": ("speculative", str),
    "--spec-draft-n-max": ("draft_n_max", int),
}


def compare(measurement: Measurement, backend: str = RPC) -> Comparison:
    """The estimate for the same header and flags beside it."""
    found = estimate(spec_of(measurement.subject), options_of(EVERY[measurement.setting], backend))
    if isinstance(found, Refusal):
        return Comparison(measurement, "refused" if measurement.outcome == "refused" else "wrongly-refused")
    if not measurement.knows_cache:
        return Comparison(measurement, "not-refused" if measurement.outcome == "refused" else "unknown")
    return Comparison(measurement, "compared", tuple(_rows(measurement, found)))


def _rows(measurement: Measurement, found: MemoryEstimate) -> Iterator[Row]:
    def row(part: str, where: str, predicted: float, logged: float, tolerance: float) -> Row:
        return Row(measurement.subject, measurement.setting, part, where, predicted, logged, tolerance)

    for part in ("n_ctx", "n_ctx_seq", "n_seq"):
        yield row(part, "", getattr(found, part), getattr(measurement, part), 0)
    cached, states = found.kv_bytes / MIB, found.recurrent_bytes / MIB
    yield row("cache", "", cached, measurement.k + measurement.v, ROUNDING * 2 * len(measurement.caches))
    yield row("state", "", states, measurement.state, ROUNDING * len(measurement.states))
    if measurement.breakdown:
        yield from _rows_by_device(measurement, found)
        return
    if measurement.model:
        yield row("weights", HOST, found.weights_bytes / MIB, sum(measurement.model.values()), WHOLE)
    if measurement.knows_compute:
        lines = len(measurement.output) * (2 if measurement.setting.startswith("mtp") else 1)  # a context that drafts
        yield row("output", HOST, found.output_bytes / MIB, sum(measurement.output.values()), ROUNDING * lines)
        compute = (found.compute_bytes + found.host_compute_bytes) / MIB
        yield row("compute", HOST, compute, sum(measurement.compute.values()), ROUNDING)


def _rows_by_device(measurement: Measurement, found: MemoryEstimate) -> Iterator[Row]:
    devices = {device.name: device for device in found.devices}
    for logged_name, sizes in measurement.breakdown.items():
        name = HOST if logged_name == "Host" else logged_name
        device = devices[name]
        weights, context = device.weights_bytes / MIB, (device.kv_bytes + device.recurrent_bytes) / MIB
        for part, predicted, logged in (("weights", weights, sizes[0]), ("context", context, sizes[1])):
            yield Row(measurement.subject, measurement.setting, part, name, predicted, logged, WHOLE)
        logged_compute = _compute(measurement, name)
        if logged_compute is not None:
            compute = device.compute_bytes / MIB
            yield Row(measurement.subject, measurement.setting, "compute", name, compute, logged_compute, ROUNDING)


def _compute(measurement: Measurement, name: str) -> float | None:
    """The buffer of a device; on the host, the one of memory that the devices may read directly."""
    found = {logged: size for logged, size in measurement.compute.items() if logged == name}
    if name == HOST:
        found |= {logged: size for logged, size in measurement.compute.items() if logged.endswith("_Host")}
    return sum(found.values()) if found else None


def compare_all(measurements: Sequence[Measurement]) -> list[Comparison]:
    return [compare(measurement) for measurement in measurements]
