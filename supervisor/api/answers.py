"""What `/api/v1` answers, for the schema: the forms of docs/rest.md. Nothing is checked or changed by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from typing_extensions import TypedDict

from supervisor.core.memory.result import Growth, LayerEstimate
from supervisor.core.speed.machine import Source
from supervisor.core.text.loglevel import LogLevel
from supervisor.service.requests import RequestStatus
from supervisor.service.status import ModelStatus, VariantShown


@dataclass(frozen=True)
class ConfigFault:
    """What was wrong with a configuration."""

    code: str
    message: str


@dataclass(frozen=True)
class ConfigStatus:
    """The configuration in force; `error`: of the last reload."""

    path: str | None
    loaded_at: float
    error: ConfigFault | None
    restart_needed: Sequence[str]


@dataclass(frozen=True)
class EngineInUse:
    """The llama-server in use."""

    path: str
    source: str
    build: int | None


@dataclass(frozen=True)
class DaemonStatus:
    """The daemon, its llama-server and all models."""

    version: str
    pid: int
    url: str
    started_at: float
    stopping: bool
    config: ConfigStatus
    engine: EngineInUse | None
    models: Sequence[ModelStatus]


@dataclass(frozen=True)
class ModelList:
    """All models."""

    models: Sequence[ModelStatus]


@dataclass(frozen=True)
class RequestList:
    """All requests in flight."""

    requests: Sequence[RequestStatus]


@dataclass(frozen=True)
class Host:
    """The machine's own memory; bytes."""

    total_bytes: int
    available_bytes: int
    usable_bytes: int | None
    reserve_bytes: int | None


@dataclass(frozen=True)
class GpuProcess:
    """What a process holds on a device."""

    pid: int
    bytes: int


@dataclass(frozen=True)
class DeviceShown:
    """A GPU or an RPC worker. What nobody tells is null."""

    name: str
    backend: str
    description: str
    index: int | None
    uuid: str | None
    pci: str | None
    compute_capability: str | None
    endpoint: str | None
    shares_host: bool
    total_bytes: int
    free_bytes: int
    utilization_percent: float | None
    temperature_c: float | None
    processes: Sequence[GpuProcess]
    usable_bytes: int | None
    reserve_bytes: int | None


@dataclass(frozen=True)
class Problem:
    """What could not be asked."""

    probe: str
    message: str


@dataclass(frozen=True)
class Devices:
    """What the machine has."""

    host: Host
    devices: Sequence[DeviceShown]
    problems: Sequence[Problem]


@dataclass(frozen=True)
class ToolCallCounts:
    """What became of tool calls in one model's answers; by dialect, or by reason."""

    answers: int
    native: int
    recovered: Mapping[str, int]
    repaired: Mapping[str, int]
    left_as_text: Mapping[str, int]
    repeated: int
    saved: int
    failed: int
    swallowed: int


@dataclass(frozen=True)
class ToolCallList:
    """By model."""

    models: Mapping[str, ToolCallCounts]


@dataclass(frozen=True)
class EstimatedDevice:
    """What a device, or the host as `CPU`, holds."""

    name: str
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int


@dataclass(frozen=True)
class Estimate:
    """What llama-server would allocate."""

    arch: str
    n_ctx: int
    n_ctx_seq: int
    n_seq: int
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int
    host_compute_bytes: int
    output_bytes: int
    projector_bytes: int
    total_bytes: int
    layers: Sequence[LayerEstimate]
    non_layer_weights_bytes: int
    host_growth: Sequence[Growth]
    devices: Sequence[EstimatedDevice]
    notes: Sequence[str]


@dataclass(frozen=True)
class PlannedPart:
    """What one device, or the host as `CPU`, would hold."""

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
    paged_bytes: int
    total_bytes: int


SpeedShown = TypedDict(
    "SpeedShown",
    {
        "prompt_tokens": int,
        "prefill_tokens_per_second": float,
        "first_token_seconds": float,
        "decode_tokens_per_second": Mapping[str, float],
        "from": Source,
    },
)
"""How fast a model would be, foretold: decoding by tokens before, as text."""


@dataclass(frozen=True)
class PlanFits:
    """Where a model would go."""

    fits: Literal[True]
    model: str
    devices: Sequence[str]
    split_mode: str
    main_gpu: int
    n_gpu_layers: int
    tensor_split: Sequence[int]
    n_cpu_moe: int
    draft_device: str | None
    ctx_size: int | None
    cache_type_k: str
    cache_type_v: str
    request_ctx: int
    paged_bytes: int
    wanted_ctx: int
    native_ctx: int
    fitting_ctx: int
    parts: Sequence[PlannedPart]
    evict: Sequence[int]
    why: Sequence[str]
    learned: bool
    estimate: Estimate
    evict_models: Sequence[str]
    arguments: Sequence[str]
    env: Mapping[str, str]
    speed: SpeedShown | None
    on_disk: bool
    problems: Sequence[Problem]
    variants: Sequence[VariantShown]
    note: str | None


@dataclass(frozen=True)
class Missing:
    """What a device lacks."""

    device: str
    needed_bytes: int
    usable_bytes: int
    missing_bytes: int


@dataclass(frozen=True)
class PlanDoesNotFit:
    """Why a model would go nowhere."""

    fits: Literal[False]
    model: str
    later: bool
    message: str
    shortages: Sequence[Missing]
    hints: Sequence[str]
    blockers: Sequence[int]
    refusal: None
    blocking_models: Sequence[str]
    on_disk: bool
    problems: Sequence[Problem]
    variants: Sequence[VariantShown]
    note: str | None


@dataclass(frozen=True)
class Reloaded:
    """What a reload changed: ids of models, and settings that count from the next start on."""

    added: Sequence[str]
    removed: Sequence[str]
    relaunched: Sequence[str]
    adjusted: Sequence[str]
    restart_needed: Sequence[str]


@dataclass(frozen=True)
class OnDisk:
    """A model on disk; `problem`: why it could not be loaded."""

    name: str
    store: str
    repo: str | None
    variant: str | None
    commit: str | None
    revisions: Sequence[str]
    size_bytes: int | None
    used_at: float
    path: str
    missing: Sequence[str]
    loaded: bool
    problem: str | None


@dataclass(frozen=True)
class DiskList:
    """Every model on disk."""

    models: Sequence[OnDisk]


@dataclass(frozen=True)
class PulledFile:
    """A file that was downloaded."""

    path: str
    size_bytes: int | None


@dataclass(frozen=True)
class Pulled:
    """A download that is done."""

    model: str
    commit: str
    previous: str | None
    updated: bool
    files: Sequence[PulledFile]
    size_bytes: int


@dataclass(frozen=True)
class Removed:
    """What a removal freed."""

    model: str
    freed_bytes: int
    files: Sequence[str]


@dataclass(frozen=True)
class Verified:
    """What is wrong with a model on disk."""

    model: str
    commit: str
    problems: Sequence[str]


@dataclass(frozen=True)
class VerifiedList:
    """All that were checked."""

    models: Sequence[Verified]


@dataclass(frozen=True)
class Level:
    """How much the daemon's log tells."""

    level: LogLevel


@dataclass(frozen=True)
class Restarted:
    """The program on disk has taken over. `pid`: the daemon's, which stays the same."""

    status: Literal["restarted"]
    pid: int


@dataclass(frozen=True)
class Stopping:
    """The daemon was told to stop."""

    status: Literal["stopping"]
