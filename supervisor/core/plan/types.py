"""What the planner is asked and what it answers. Sizes are bytes, contexts are tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from supervisor.core.memory import EstimateOptions, MemoryEstimate
from supervisor.core.spec import ModelSpec

SplitMode = Literal["layer", "none"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What one device, or the host (`CPU`), has for our engines.

    Attributes:
        total_bytes: of the hardware.
        usable_bytes: for all our engines together: total − used by others − reserve.
        reserve_bytes: what is kept back on it for each engine: runtime context, fragmentation.
        backend: as `Device.backend`; `cpu` for the host.
        shares_host: what it holds counts on the host too.
    """

    name: str
    backend: str
    total_bytes: int
    usable_bytes: int
    reserve_bytes: int = 0
    shares_host: bool = False


@dataclass(frozen=True, slots=True)
class Budgets:
    """The machine as the planner sees it: devices in llama.cpp's order, and the host."""

    devices: tuple[Budget, ...]
    host: Budget


@dataclass(frozen=True, slots=True)
class Resident:
    """An engine that lives, or is decided to live.

    Attributes:
        engine: its number.
        used_bytes: by device name, `CPU` included: measured where known, else planned; reserve per engine included.
        evictable: idle and not pinned.
        reload_seconds: what it takes to bring it back.
        idle_seconds: since its last request.
        priority: larger is worth more.
    """

    engine: int
    model: str
    used_bytes: Mapping[str, int]
    evictable: bool = False
    reload_seconds: float = 10.0
    idle_seconds: float = 0.0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """How the planner chooses where the user does not say.

    Attributes:
        context_target: wanted per request; the smaller of it and the native context counts.
        context_min: never less.
        growth_share: of what is free after the wanted context, how much a growing context leaves to the next model.
        kv_types: cache types that may be chosen, best first.
        cpu_moe: experts may go to the host.
        partial_offload: layers may go to the host, on machines that have devices.
    """

    context_target: int = 32768
    context_min: int = 4096
    growth_share: float = 0.25
    kv_types: tuple[str, ...] = ("f16",)
    cpu_moe: bool = True
    partial_offload: bool = True


@dataclass(frozen=True, slots=True)
class Explicit:
    """What the user decided: honoured or refused, never changed. None: the planner's choice.

    Attributes:
        ctx_size: tokens of all slots, as llama-server's `--ctx-size`; 0: the native context in full.
        devices: names in the order wanted; empty: no device at all.
        tensor_split: shares of the devices.
        n_gpu_layers: the output layer counts as one.
    """

    ctx_size: int | None = None
    devices: tuple[str, ...] | None = None
    tensor_split: tuple[float, ...] | None = None
    split_mode: SplitMode | None = None
    main_gpu: int | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What an engine of this model really took before, beside what had been estimated for it.

    Attributes:
        compute: measured / estimated bytes of the compute buffers, by device name (`CPU` included).
        overhead_bytes: by device name: what the process held beside its buffers (runtime context, libraries).
        same: the options are those of the plan, so that the figures are exact.
        source: where they come from, in words.
    """

    compute: Mapping[str, float]
    overhead_bytes: Mapping[str, int]
    same: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """One model that wants to be loaded.

    Attributes:
        options: everything about the start that is not the planner's to choose (slots, batches, flash attention, …);
            its devices, split, layers, context and cache types are ignored.
        projector_bytes: weights of the projector; it goes to the first device.
        draft: a second model that drafts, placed on the same devices.
        siblings: other quantisations of the model and their weights, for advice: (name, bytes).
    """

    model: str
    spec: ModelSpec
    options: EstimateOptions = field(default_factory=EstimateOptions)
    explicit: Explicit = field(default_factory=Explicit)
    projector_bytes: int = 0
    draft: ModelSpec | None = None
    learned: Learned | None = None
    siblings: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What one device (or the host, `CPU`) will hold, part by part, and what is left of its budget afterwards."""

    name: str
    layers: int
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int
    output_bytes: int
    projector_bytes: int
    draft_bytes: int
    reserve_bytes: int
    left_bytes: int

    @property
    def total_bytes(self) -> int:
        """What the plan takes here, the reserve included."""
        return (
            self.weights_bytes
            + self.kv_bytes
            + self.recurrent_bytes
            + self.compute_bytes
            + self.output_bytes
            + self.projector_bytes
            + self.draft_bytes
            + self.reserve_bytes
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """A decision: everything that `--device`, `--tensor-split`, `--ctx-size` and their like will say.

    Attributes:
        devices: names in the order of `--device`; empty: the host alone.
        tensor_split: layers per device; empty with one device or none.
        options: what was estimated: `options.ctx_size` is the context in force, of all slots.
        wanted_ctx, native_ctx: per request; what was aimed at, and what the model was trained for.
        fitting_ctx: the largest per request that would fit on these devices, native at most.
        parts: one per device in order, the host last.
        evict: engines that must leave first.
        why: the reasoning, a sentence each.
        learned: figures come from an earlier start.
    """

    model: str
    devices: tuple[str, ...]
    split_mode: SplitMode
    main_gpu: int
    n_gpu_layers: int
    tensor_split: tuple[int, ...]
    n_cpu_moe: int
    options: EstimateOptions
    estimate: MemoryEstimate
    wanted_ctx: int
    native_ctx: int
    fitting_ctx: int
    parts: tuple[DevicePlan, ...]
    evict: tuple[int, ...]
    why: tuple[str, ...]
    learned: bool = False

    @property
    def used_bytes(self) -> dict[str, int]:
        """What the engine will hold by device name, `CPU` included: what a `Resident` needs."""
        return {part.name: part.total_bytes for part in self.parts}


@dataclass(frozen=True, slots=True)
class Shortage:
    """How much is missing where, for the attempt that came nearest."""

    device: str
    needed_bytes: int
    usable_bytes: int

    @property
    def missing_bytes(self) -> int:
        return max(0, self.needed_bytes - self.usable_bytes)


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Why there is no placement.

    Attributes:
        later: it would fit once engines that cannot leave now, busy or pinned, have left.
        message: a sentence or two with the numbers.
        shortages: by device.
        hints: what would help, most useful first: a sentence each.
        blockers: engines that would have to leave and cannot yet.
    """

    model: str
    later: bool
    message: str
    shortages: tuple[Shortage, ...] = ()
    hints: tuple[str, ...] = ()
    blockers: tuple[int, ...] = ()
