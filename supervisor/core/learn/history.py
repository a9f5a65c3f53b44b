"""Learn from a model's earlier starts for the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from supervisor.core.engine_output.footprint import HOST, DeviceFootprint, Footprint
from supervisor.core.learn.identity import Start, kind_of
from supervisor.core.memory import MemoryEstimate
from supervisor.core.plan.types import Learned

Figure = TypeVar("Figure", int, float)

_LEAST_BYTES = 1 << 20  # the log rounds to 0.01 MiB: ratios of smaller buffers are noise
_LEAST, _MOST = 1.0, 5.0
"""Of other options. A start that took less than the bound says nothing of another: another split, another context has
its widest place elsewhere. One that took more says that the bound is wrong, five times that it was for something else;
the latter for the same options, too: a model's file can write into the log that the figures were read from.
"""
_RECENT = 5


@dataclass(frozen=True, slots=True)
class Observation:
    """One start as it was measured.

    Attributes:
        estimated: compute bytes by device that were estimated for it then; empty where nothing was.
        overhead_bytes: by device: what the process held beside its buffers.
        at: seconds since 1970.
    """

    start: Start
    footprint: Footprint
    estimated: Mapping[str, int]
    overhead_bytes: Mapping[str, int]
    at: float


def learned(observations: Iterable[Observation], now: Start, estimate: MemoryEstimate) -> Learned | None:
    """Return what the most telling of these observations of the model says about a planned start.

    The same engine file comes first, then another build with the same back end; within either the same options, then
    those that differ least, then the newest. With the same engine, options and devices the figures are those measured:
    the ratio to `estimate` gives them back. Otherwise it is the ratio of that start, but 1 at least; for a device that
    it did not use the largest of a device of the kind. It is 5 at most in any case.
    """
    usable = [one for one in observations if one.start.model == now.model and one.start.backend == now.backend]
    usable = [one for one in usable if one.start.engine == now.engine] or usable
    if not usable:
        return None
    best = max(usable, key=lambda one: (_is_same(one, now, estimate), _nearness(one.start, now), one.at))
    same = _is_same(best, now, estimate)
    estimated = {device.name: device.compute_bytes for device in estimate.devices}
    ratios = _ratios(best.footprint, estimated if same else best.estimated, 1 if same else _LEAST_BYTES)
    least = 0.0 if same else _LEAST
    ratios = {name: min(max(ratio, least), _MOST) for name, ratio in ratios.items()}
    return Learned(
        compute=_for_all(estimated, ratios),
        overhead_bytes=_for_all(estimated, best.overhead_bytes),
        same=same,
        source=_source(best, now, same),
    )


def lowers_plans(one: Observation) -> bool:
    """Return whether plans that go by an observation may be smaller than by the estimate alone.

    They are where a compute buffer took less than estimated, and where what a process holds beside its buffers on a
    device takes the place of the reserve.
    """
    smaller = any(device.compute_bytes < one.estimated.get(device.name, 0) for device in one.footprint.devices)
    return smaller or any(name != HOST for name in one.overhead_bytes)


def overhead(footprint: Footprint, process_bytes: Mapping[str, int], anonymous_bytes: int | None) -> dict[str, int]:
    """Return the bytes that a process holds beside its buffers, by device.

    Args:
        footprint: its own account.
        process_bytes: what the driver says that it holds, by the footprint's names. Less than its buffers cannot be
            the same process (a container counts its own), and counts as not told.
        anonymous_bytes: of the host's memory, without mapped files, just after it became ready: then caches, states and
            output buffers are filled, compute buffers hardly touched. None where the platform does not tell.
    """
    found = {
        name: held - footprint.on(name).total_bytes
        for name, held in process_bytes.items()
        if name != HOST and held > 0 and held >= footprint.on(name).total_bytes
    }
    if anonymous_bytes is not None:
        found[HOST] = max(0, anonymous_bytes - resident_bytes(footprint.on(HOST)))
    return found


def resident_bytes(device: DeviceFootprint) -> int:
    """Return the bytes of a footprint that are the process's own memory as soon as it is ready."""
    return device.total_bytes - device.lazy_bytes


def typical_seconds(seconds: Sequence[float]) -> float | None:
    """Return the middle of the newest few; None without any. `seconds` come newest first."""
    return median(seconds[:_RECENT]) if seconds else None


def _is_same(one: Observation, now: Start, estimate: MemoryEstimate) -> bool:
    start = one.start
    known = not start.devices or not now.devices or start.devices == now.devices
    in_force = one.footprint.n_ctx in {0, estimate.n_ctx}  # the engine may have chosen its context by itself
    return (start.engine, start.options) == (now.engine, now.options) and known and in_force


def _nearness(start: Start, now: Start) -> int:
    """Return the number of settings that are equal."""
    return sum(start.settings.get(name) == value for name, value in now.settings.items())


def _ratios(footprint: Footprint, estimated: Mapping[str, int], least: int) -> dict[str, float]:
    """Return measured / estimated by device. A device that was to hold nothing, or held nothing, is left out."""
    return {
        device.name: device.compute_bytes / estimated[device.name]
        for device in footprint.devices
        if device.compute_bytes > 0 and estimated.get(device.name, 0) >= least
    }


def _for_all(names: Iterable[str], known: Mapping[str, Figure]) -> dict[str, Figure]:
    """Return a figure for every device: its own, else the largest of its kind; none where neither is known."""
    found = {}
    for name in names:
        of_kind = [figure for other, figure in known.items() if kind_of(other) == kind_of(name)]
        if name in known:
            found[name] = known[name]
        elif of_kind:
            found[name] = max(of_kind)
    return found


def _source(best: Observation, now: Start, same: bool) -> str:
    if same:
        return "measured with this engine and these options"
    if best.start.engine == now.engine:
        return "scaled from a start of this engine with other options"
    build = f"build {best.start.build}" if best.start.build else "another build"
    return f"scaled from a start of {build}, same back end"
