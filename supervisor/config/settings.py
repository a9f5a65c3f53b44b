"""The settings there are, with their defaults. Unknown keys are errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from supervisor.config.base import Positive, Seconds
from supervisor.config.base import Strict as _Strict
from supervisor.config.management import GroupSettings, Management
from supervisor.core.devices.reserves import Reserves
from supervisor.core.plan import Overcommit, Policy
from supervisor.core.schedule import SchedulerLimits
from supervisor.core.toolmode import ToolMode

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8686

_DEFAULT = Policy()
_LIMITS = SchedulerLimits()

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


class ServerSettings(_Strict):
    """Where the daemon listens and who may use it."""

    host: str = DEFAULT_HOST
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    api_keys: tuple[Annotated[str, Field(min_length=8, pattern=r"^[!-~]+$")], ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_mib: Annotated[int, Field(ge=1)] = 256
    drain: Seconds = _LIMITS.drain
    watch_config: bool = True
    keep_alive: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 5
    tool_calls: ToolMode = "auto"


class QueueSettings(_Strict):
    """How many requests may wait, and how long a waiting one is passed by later ones. Times are seconds."""

    max_waiting_model: Positive = _LIMITS.max_waiting_model
    max_waiting: Positive = _LIMITS.max_waiting
    max_swap_wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = _LIMITS.max_swap_wait
    max_linger: Annotated[float, Field(ge=0, allow_inf_nan=False)] = _LIMITS.max_linger


class ContextSettings(_Strict):
    """How much context a model gets where nobody says; tokens per request, `growth_share` a share of what is free."""

    target: Annotated[int, Field(ge=256)] = _DEFAULT.context_target
    min: Annotated[int, Field(ge=256)] = _DEFAULT.context_min
    growth_share: Annotated[float, Field(ge=0, le=1)] = _DEFAULT.growth_share


class PlacementSettings(_Strict):
    """What may be done for a model that does not fit as it is (docs/planning.md)."""

    kv_types: Annotated[tuple[CacheType, ...], Field(min_length=1)] = ("f16",)
    cpu_moe: bool = _DEFAULT.cpu_moe
    partial_offload: bool = _DEFAULT.partial_offload
    overcommit: Overcommit = _DEFAULT.overcommit


class EngineSettings(_Strict):
    """Which `llama-server`, and how patient we are with it. Times are seconds."""

    path: str | None = None
    stall_timeout: Annotated[float, Field(gt=0)] = 120
    stop_timeout: Annotated[float, Field(gt=0)] = 10


Mebibytes = Annotated[int, Field(ge=0)]


class DeviceSettings(_Strict):
    """RPC workers that count as devices; what is kept back or allowed, in MiB by device name (`CUDA0`) or back end."""

    rpc: tuple[Annotated[str, Field(pattern=r"^[^\s,:]+:\d{1,5}$")], ...] = ()
    reserve_mib: dict[str, Mebibytes] = Field(default_factory=dict)
    engine_reserve_mib: dict[str, Mebibytes] = Field(default_factory=dict)
    limit_mib: dict[str, Mebibytes] = Field(default_factory=dict)

    def reserves(self) -> Reserves:
        """The same in bytes, over the defaults."""
        return Reserves(_bytes(self.reserve_mib), _bytes(self.engine_reserve_mib), _bytes(self.limit_mib))


class HubSettings(_Strict):
    """Where models come from; null: as the hub's own client has it, from the environment (docs/hub.md)."""

    endpoint: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    token: Annotated[str | None, Field(min_length=1, pattern=r"^[!-~]+$", repr=False)] = None
    cache: str | None = None
    offline: bool = False
    xet: bool = True
    timeout: Annotated[float, Field(gt=0)] = 5


Natural = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]


class ModelOptions(_Strict):
    """How a model is launched; names and meanings are llama-server's own (docs/launch.md).

    These are for everybody, clients of the REST interface included: none names a file or host of the machine.
    """

    ctx_size: Natural | None = None
    parallel: Positive | None = None
    kv_unified: bool | None = None
    batch_size: Positive | None = None
    ubatch_size: Positive | None = None
    cache_type_k: CacheType | None = None
    cache_type_v: CacheType | None = None
    flash_attn: Literal["on", "off", "auto"] | None = None
    swa_full: bool = False
    context_shift: bool | None = None
    cache_ram: Annotated[int, Field(ge=-1)] | None = None
    ctx_checkpoints: Natural | None = None
    threads: Positive | None = None
    threads_batch: Positive | None = None
    device: tuple[str, ...] | None = None
    n_gpu_layers: Natural | None = None
    tensor_split: tuple[Share, ...] = ()
    split_mode: Literal["none", "layer", "row", "tensor"] | None = None
    main_gpu: Natural | None = None
    cpu_moe: bool = False
    n_cpu_moe: Natural | None = None
    n_cpu_ffn: Natural | None = None
    override_tensor: tuple[str, ...] = ()
    kv_offload: bool | None = None
    op_offload: bool | None = None
    repack: bool | None = None
    load_mode: Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"] | None = None
    fit: Literal["on", "off"] | None = None
    overcommit: Overcommit | None = None
    embeddings: Literal["auto", "on", "off"] = "auto"
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = None
    reranking: bool = False
    jinja: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    skip_chat_parsing: bool = False
    reasoning: Literal["on", "off", "auto"] | None = None
    reasoning_format: str | None = None
    reasoning_effort: str | None = None
    reasoning_budget: Annotated[int, Field(ge=-1)] | None = None
    reasoning_budget_message: str | None = None
    reasoning_preserve: bool | None = None
    keep_kv: bool = False
    mmproj_auto: bool | None = None
    mmproj_offload: bool | None = None
    mmproj_device: str | None = None
    rope_scaling: Literal["none", "linear", "yarn"] | None = None
    rope_scale: Number | None = None
    rope_freq_base: Number | None = None
    rope_freq_scale: Number | None = None
    yarn_orig_ctx: Natural | None = None
    yarn_ext_factor: Number | None = None
    yarn_attn_factor: Number | None = None
    yarn_beta_slow: Number | None = None
    yarn_beta_fast: Number | None = None
    spec_type: tuple[str, ...] = ()
    spec_draft_n_max: Natural | None = None
    spec_draft_n_min: Natural | None = None
    spec_draft_p_min: Probability | None = None
    spec_draft_p_split: Probability | None = None
    spec_draft_ngl: Natural | None = None
    spec_draft_device: tuple[str, ...] | None = None
    spec_draft_type_k: CacheType | None = None
    spec_draft_type_v: CacheType | None = None
    spec_draft_cpu_moe: bool = False
    spec_draft_n_cpu_moe: Natural | None = None
    spec_draft_override_tensor: tuple[str, ...] = ()
    spec_ngram_mod_n_min: Natural | None = None
    spec_ngram_mod_n_max: Natural | None = None
    spec_ngram_mod_n_match: Positive | None = None
    spec_ngram_simple_size_n: Positive | None = None
    spec_ngram_simple_size_m: Positive | None = None
    spec_ngram_simple_min_hits: Positive | None = None
    spec_ngram_map_k_size_n: Positive | None = None
    spec_ngram_map_k_size_m: Positive | None = None
    spec_ngram_map_k_min_hits: Positive | None = None
    spec_ngram_map_k4v_size_n: Positive | None = None
    spec_ngram_map_k4v_size_m: Positive | None = None
    spec_ngram_map_k4v_min_hits: Positive | None = None
    extra_args: tuple[str, ...] = ()


class LoraSettings(_Strict):
    """An adapter's file, and how strongly it is applied."""

    path: str
    scale: Number = 1.0


class DefaultSettings(ModelOptions, Management):
    """What models get that do not say otherwise.

    What is here and not in ModelOptions reaches the machine: only who writes the configuration may set it, no client.
    """

    chat_template_file: str | None = None
    slot_save_path: str | None = None
    lora: tuple[LoraSettings, ...] = ()
    mmproj: str | None = None
    spec_draft_model: str | None = None
    rpc: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)


class ModelSettings(DefaultSettings):
    """One model of the catalogue.

    `source` is `demo`, a path (it begins with `.`, `/` or `~`, or ends in `.gguf`) of a file or folder, or
    `owner/repo:quant`; `file` is a path however it looks. With neither it is the one of that name in `models_dir`.
    """

    source: str | None = None
    file: str | None = None
    aliases: tuple[str, ...] = ()


class KvStoreSettings(_Strict):
    """Where `keep_kv` keeps the slots: MiB of all files together; the oldest go first."""

    max_mib: Mebibytes = 8192


class MemoryWatchSettings(_Strict):
    """How far beyond its plan an engine's memory may grow, as a share of the plan; null: as far as it likes."""

    share: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 0.5


class Settings(_Strict):
    """The whole file."""

    server: ServerSettings = ServerSettings()
    engine: EngineSettings = EngineSettings()
    hub: HubSettings = HubSettings()
    devices: DeviceSettings = DeviceSettings()
    context: ContextSettings = ContextSettings()
    placement: PlacementSettings = PlacementSettings()
    queue: QueueSettings = QueueSettings()
    models_dir: str | None = None
    defaults: DefaultSettings = DefaultSettings()
    kv_store: KvStoreSettings = KvStoreSettings()
    memory_watch: MemoryWatchSettings = MemoryWatchSettings()
    restore: bool = False
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    groups: dict[str, GroupSettings] = Field(default_factory=dict)

    def policy(self) -> Policy:
        """How the planner chooses where nobody says."""
        context, placement = self.context, self.placement
        return Policy(
            context_target=context.target,
            context_min=context.min,
            growth_share=context.growth_share,
            kv_types=placement.kv_types,
            cpu_moe=placement.cpu_moe,
            partial_offload=placement.partial_offload,
            overcommit=placement.overcommit,
        )

    def limits(self) -> SchedulerLimits:
        """What the scheduler keeps to."""
        return replace(_LIMITS, **self.queue.model_dump(), drain=self.server.drain)


def _bytes(mebibytes: dict[str, int]) -> dict[str, int]:
    return {name: count << 20 for name, count in mebibytes.items()}
