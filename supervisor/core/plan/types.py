"""The questions to the planner and its answers. Sizes are bytes, contexts are tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from supervisor.core.devices import Budget, Budgets
from supervisor.core.memory import EstimateOptions, MemoryEstimate, Refusal
from supervisor.core.memory.result import Growth
from supervisor.core.spec import ModelSpec

SplitMode = Literal["layer", "none"]
Overcommit = Literal["off", "mmap"]

__all__ = [
    "Budget",
    "Budgets",
    "DevicePlan",
    "DoesNotFit",
    "Explicit",
    "Learned",
    "Overcommit",
    "Placement",
    "PlanRequest",
    "Policy",
    "Resident",
    "Shortage",
    "SplitMode",
]


@dataclass(frozen=True, slots=True)
class Resident:
    """An engine that lives, or is decided to live.

    Attributes:
        engine: its number.
        used_bytes: by device name, `CPU` included: as planned, with the reserve per engine.
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
    """The planner's choices where the user does not decide.

    Attributes:
        context_target: wanted per request; the smaller of it and the native context counts.
        context_min: never less.
        growth_share: of what is free after the wanted context, how much a growing context leaves to the next model.
        kv_types: cache types that may be chosen, best first.
        cpu_moe: experts may go to the host.
        partial_offload: layers may go to the host, on machines that have devices.
        overcommit: `mmap`: where nothing fits, weights on the host may be more than its memory: they are mapped from
            the file, and what has no room is read again and again.
    """

    context_target: int = 32768
    context_min: int = 4096
    growth_share: float = 0.25
    kv_types: tuple[str, ...] = ("f16",)
    cpu_moe: bool = True
    partial_offload: bool = True
    overcommit: Overcommit = "off"


@dataclass(frozen=True, slots=True)
class Explicit:
    """The user's own decisions: honoured or refused, never changed. None: the planner's choice.

    Attributes:
        ctx_size: tokens of all slots, as llama-server's `--ctx-size`; 0: the native context in full.
        devices: names in the order wanted; empty: no device at all.
        tensor_split: shares of the devices.
        n_gpu_layers: the output layer counts as one.
        overcommit: in place of the policy's, for this model.
        mapped: weights may be mapped from the file; False where the user wants them read, locked or repacked.
        fit: llama-server's own fitting decides on layers and context, within what the planner would choose.
        projector_device, draft_device: where the projector and the draft model go; `CPU`: the host.
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
    overcommit: Overcommit | None = None
    mapped: bool = True
    fit: bool = False
    projector_device: str | None = None
    draft_device: str | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """The memory that an engine of this model really took before, beside what had been estimated for it.

    Attributes:
        compute: measured / estimated bytes of the compute buffers, by device name (`CPU` included).
        overhead_bytes: by device name: what the process held beside its buffers (runtime context, libraries).
        same: the options are those of the plan, so that the figures are exact.
        source: where they come from, in words.
    """

    compute: Mapping[str, float]
    overhead_bytes: Mapping[str, int]
    same: bool = False
    source: str = "from earlier starts"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A model that is to be loaded.

    Attributes:
        options: everything about the start that is not the planner's to choose (slots, batches, flash attention, …);
            its devices, split, layers, context and cache types are ignored.
        projector_bytes: weights of the projector; it goes to the first device that holds layers.
        draft: a second model that drafts; it goes there too.
        siblings: other quantisations of the model and their weights, for advice: (name, bytes).
        short: bytes by device that earlier starts lacked: kept free beside all that is estimated.
    """

    model: str
    spec: ModelSpec
    options: EstimateOptions = field(default_factory=EstimateOptions)
    explicit: Explicit = field(default_factory=Explicit)
    projector_bytes: int = 0
    draft: ModelSpec | None = None
    learned: Learned | None = None
    siblings: tuple[tuple[str, int], ...] = ()
    short: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The bytes that one device (or the host, `CPU`) will hold, part by part.

    Attributes:
        layers: whole ones; the output layer counts as one.
        output_bytes: logits and embeddings of the last batch; on the host alone.
        projector_bytes, draft_bytes: on the first device, the host, or where the user wants them; the draft has a part
            on the host anyway.
        reserve_bytes: what is kept back for this engine: measured where it is known, else the budget's.
        left_bytes: of the budget, once this engine is there and those that must leave have left.
        paged_bytes: of the weights, mapped from the file, what finds no room: it is not in the total.
    """

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
    paged_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of the plan here, the reserve included, without what is paged."""
        return (
            self.weights_bytes
            + self.kv_bytes
            + self.recurrent_bytes
            + self.compute_bytes
            + self.output_bytes
            + self.projector_bytes
            + self.draft_bytes
            + self.reserve_bytes
            - self.paged_bytes
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
        draft_device: what `--device-draft` must say, so that all of the draft model is on the first device that holds
            layers, or where the user wants it; None: no draft, or the host alone.
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
    draft_device: str | None = None

    @property
    def paged_bytes(self) -> int:
        """Bytes of the weights without room in the host's memory, which are read from the file again and again."""
        return self.parts[-1].paged_bytes

    @property
    def host_growth(self) -> tuple[Growth, ...] | None:
        """Parts that may grow on the host later; None: it may grow without limit."""
        return self.estimate.host_growth

    @property
    def used_bytes(self) -> dict[str, int]:
        """Bytes that the engine will hold, by device name, `CPU` included: as a `Resident` needs them."""
        return {part.name: part.total_bytes for part in self.parts}

    def to_json(self) -> dict[str, object]:
        """Return the object of `plan --json`; `ctx_size` is of all slots, `estimate` the whole estimate."""
        options = self.options
        return {
            "fits": True,
            "model": self.model,
            "devices": list(self.devices),
            "split_mode": self.split_mode,
            "main_gpu": self.main_gpu,
            "n_gpu_layers": self.n_gpu_layers,
            "tensor_split": list(self.tensor_split),
            "n_cpu_moe": self.n_cpu_moe,
            "draft_device": self.draft_device,
            "ctx_size": options.ctx_size,
            "cache_type_k": options.cache_type_k,
            "cache_type_v": options.cache_type_v,
            "request_ctx": self.estimate.n_ctx_seq,
            "paged_bytes": self.paged_bytes,
            "wanted_ctx": self.wanted_ctx,
            "native_ctx": self.native_ctx,
            "fitting_ctx": self.fitting_ctx,
            "parts": [asdict(part) | {"total_bytes": part.total_bytes} for part in self.parts],
            "evict": list(self.evict),
            "why": list(self.why),
            "learned": self.learned,
            "estimate": self.estimate.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Shortage:
    """The bytes that are missing on a device, for the attempt that came nearest.

    Attributes:
        needed_bytes: by this engine alone, its reserve included.
        usable_bytes: what is left for it beside the engines that stay.
    """

    device: str
    needed_bytes: int
    usable_bytes: int

    @property
    def missing_bytes(self) -> int:
        """Bytes that would have to be added; never negative."""
        return max(0, self.needed_bytes - self.usable_bytes)

    def to_json(self) -> dict[str, object]:
        """Return an object of `shortages`."""
        return asdict(self) | {"missing_bytes": self.missing_bytes}


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """The reason why there is no placement.

    Attributes:
        later: it would fit once engines that cannot leave now, busy or pinned, have left.
        message: a sentence or two with the numbers.
        shortages: by device.
        hints: what would help, most useful first: a sentence each.
        blockers: engines that would have to leave and cannot yet.
        refusal: the engine would not start with these options, however much memory there is: its code and reason.
    """

    model: str
    later: bool
    message: str
    shortages: tuple[Shortage, ...] = ()
    hints: tuple[str, ...] = ()
    blockers: tuple[int, ...] = ()
    refusal: Refusal | None = None

    def to_json(self) -> dict[str, object]:
        """Return the object of `plan --json` where nothing fits."""
        return {
            "fits": False,
            "model": self.model,
            "later": self.later,
            "message": self.message,
            "shortages": [shortage.to_json() for shortage in self.shortages],
            "hints": list(self.hints),
            "blockers": list(self.blockers),
            "refusal": asdict(self.refusal) if self.refusal else None,
        }
