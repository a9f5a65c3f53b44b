"""The settings with their defaults. Unknown keys are errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from supervisor.config.base import (
    Addresses,
    BodyMebibytes,
    Context,
    FetchedMebibytes,
    Flag,
    HeaderCount,
    HeaderKibibytes,
    Listen,
    Listens,
    Mebibytes,
    Name,
    Names,
    Networks,
    NoSeconds,
    Origins,
    Path,
    Port,
    Positive,
    Probability,
    Seconds,
    Secret,
    Sizes,
    SomePortion,
    Url,
)
from supervisor.config.base import Strict as _Strict
from supervisor.config.management import GroupSettings, Management
from supervisor.config.options import with_options
from supervisor.core.devices.reserves import Reserves
from supervisor.core.gguf.ggml import CacheType
from supervisor.core.options import LaunchOptions, options_of
from supervisor.core.plan import Overcommit, Policy
from supervisor.core.requests.captured import CaptureRules
from supervisor.core.requests.media import Fetching
from supervisor.core.schedule import SchedulerLimits
from supervisor.core.text.loglevel import LogFormat, LogLevel
from supervisor.core.toolcalls.mode import ToolMode
from supervisor.engines.kinds import KINDS
from supervisor.system.certificates import TlsFiles

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8686

Autoload = Literal["off", "disk", "hub"]
"""The models that a request may name though nobody configured them: none, those on disk, or any of the hub."""

_DEFAULT = Policy()
_LIMITS = SchedulerLimits()


class TracingSettings(_Strict):
    """The collector that gets a trace of every request, by OTLP over HTTP; null: as OpenTelemetry's variables say."""

    endpoint: Url | None = None


class ServerSettings(_Strict):
    """The address of the daemon, and who may use it."""

    host: Name = DEFAULT_HOST
    port: Port = DEFAULT_PORT
    listen: Listens = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    api_keys: Annotated[tuple[Secret, ...], Field(max_length=1000)] = ()
    allowed_hosts: Names = ()
    allowed_origins: Origins = ()
    max_body_mib: BodyMebibytes = 256
    max_buffered_mib: BodyMebibytes = 1024
    max_header_kib: HeaderKibibytes = 64
    max_headers: HeaderCount = 100
    max_connections: Positive | None = None
    header_timeout: Seconds = 20
    body_timeout: Seconds = 60
    idle_timeout: Seconds = 75
    drain: Seconds = _LIMITS.drain
    watch_config: Flag = True
    keep_alive: NoSeconds = 5
    tool_calls: ToolMode = "auto"
    default_model: Name | None = None
    autoload: Autoload = "disk"
    fetch_urls: Fetching = "https"
    fetch_allow: Networks = ()
    fetch_max_mib: FetchedMebibytes = 16
    fetch_timeout: Seconds = 20
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    log_max_mib: Annotated[int, Field(ge=1, le=1024)] = 5
    log_files: Annotated[int, Field(ge=1, le=100)] = 4
    tracing: TracingSettings = TracingSettings()

    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Return host and port of every address to listen on, the main one first."""
        return ((self.host, self.port), *map(_host_and_port, self.listen))

    def tls_files(self) -> TlsFiles | None:
        """Return the files for TLS; None where plain HTTP is spoken."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)


class QueueSettings(_Strict):
    """The number of requests that may wait, and how long later ones may pass a waiting one. Times are seconds."""

    max_waiting_model: Positive = _LIMITS.max_waiting_model
    max_waiting: Positive = _LIMITS.max_waiting
    max_swap_wait: NoSeconds = _LIMITS.max_swap_wait
    max_linger: NoSeconds = _LIMITS.max_linger


class ContextSettings(_Strict):
    """The default context of a model; tokens per request, `growth_share` a share of what is free."""

    target: Context = _DEFAULT.context_target
    min: Context = _DEFAULT.context_min
    growth_share: Probability = _DEFAULT.growth_share


class PlacementSettings(_Strict):
    """The means allowed for a model that does not fit as it is (docs/planning.md)."""

    kv_types: Annotated[tuple[CacheType, ...], Field(min_length=1, max_length=9)] = ("f16",)
    cpu_moe: Flag = _DEFAULT.cpu_moe
    partial_offload: Flag = _DEFAULT.partial_offload
    overcommit: Overcommit = _DEFAULT.overcommit


class EngineSettings(_Strict):
    """The `llama-server` to use, and our patience with it. Times are seconds."""

    path: Path | None = None
    stall_timeout: Seconds = 120
    stop_timeout: Seconds = 10


class DeviceSettings(_Strict):
    """RPC workers that count as devices, and memory kept back or allowed.

    In MiB by device name (`CUDA0`) or back end.
    """

    rpc: Addresses = ()
    reserve_mib: Sizes = Field(default_factory=dict)
    engine_reserve_mib: Sizes = Field(default_factory=dict)
    limit_mib: Sizes = Field(default_factory=dict)

    def reserves(self) -> Reserves:
        """Return the reserves in bytes, over the defaults."""
        return Reserves(_bytes(self.reserve_mib), _bytes(self.engine_reserve_mib), _bytes(self.limit_mib))


class WorkerSettings(_Strict):
    """Where other hosts join as workers, which lend their devices (docs/workers.md); null: no worker is taken."""

    listen: Listen | None = None

    def address(self) -> tuple[str, int] | None:
        """Return host and port to listen on; None where no worker is taken."""
        return None if self.listen is None else _host_and_port(self.listen)


class ClusterSettings(_Strict):
    """What a node does where its cluster cannot decide who loads a model: `refuse` it, or load it here (`local`)."""

    undecided: Literal["refuse", "local"] = "refuse"


class HubSettings(_Strict):
    """The hub that models come from; null: as the hub's own client has it, from the environment (docs/hub.md)."""

    endpoint: Url | None = None
    token: Annotated[str | None, Field(min_length=1, max_length=1024, pattern=r"^[!-~]+$", repr=False)] = None
    cache: Path | None = None
    offline: Flag = False
    xet: Flag = True
    timeout: Seconds = 5


@with_options(row for row in options_of(LaunchOptions) if row.client)
class ModelOptions(_Strict):
    """The launch options of a model; names and meanings are llama-server's own (docs/launch.md).

    These are for everybody, clients of the REST interface included: none names a file or host of the machine.
    """


@with_options(row for row in options_of(LaunchOptions) if not row.client)
class DefaultSettings(ModelOptions, Management):
    """The settings of models that have none of their own.

    What is here and not in ModelOptions reaches the machine: only who writes the configuration may set it, no client.
    """


@with_options(row for kind in KINDS.values() if kind.source is not None for row in options_of(kind.options))
class ModelSettings(DefaultSettings):
    """A model of the catalogue.

    `source` is `demo`, a path (it begins with `.`, `/` or `~`, or ends in `.gguf`) of a file or folder,
    `owner/repo:quant`, or `command` (docs/commands.md); `file` is a path however it looks. With neither it is the one
    of that name in `models_dir`.
    """

    source: Path | None = None
    file: Path | None = None
    aliases: Names = ()


class KvStoreSettings(_Strict):
    """The place where `keep_kv` keeps the slots: MiB of all files together; the oldest go first."""

    max_mib: Mebibytes = 8192


class MemoryWatchSettings(_Strict):
    """The growth of an engine's memory allowed beyond its plan, as a share of the plan; null: any."""

    share: SomePortion | None = 0.5


class HistorySettings(_Strict):
    """What is kept of requests that have ended: for how many days (0: nothing), and how many of them at most."""

    days: Annotated[float, Field(ge=0, le=3650, allow_inf_nan=False)] = 30
    max_rows: Annotated[int, Field(ge=1, le=10_000_000)] = 200_000


class CaptureSettings(_Strict):
    """The requests whose prompts and answers are kept, by model or by key (`*` stands for any text), and how many.

    Sizes: MiB of all together, the oldest go first; KiB of one request, and of one answer.
    """

    models: Names = ()
    keys: Names = ()
    max_mib: BodyMebibytes = 64
    max_records: Annotated[int, Field(ge=1, le=100_000)] = 1000
    max_record_kib: Annotated[int, Field(ge=1, le=4096)] = 256

    def rules(self) -> CaptureRules:
        """Return whose requests are captured, and how much is kept of them, in bytes."""
        sizes = (self.max_mib << 20, self.max_records, self.max_record_kib << 10)
        return CaptureRules(self.models, self.keys, *sizes)


class Settings(_Strict):
    """The whole file."""

    server: ServerSettings = ServerSettings()
    engine: EngineSettings = EngineSettings()
    hub: HubSettings = HubSettings()
    devices: DeviceSettings = DeviceSettings()
    workers: WorkerSettings = WorkerSettings()
    cluster: ClusterSettings = ClusterSettings()
    context: ContextSettings = ContextSettings()
    placement: PlacementSettings = PlacementSettings()
    queue: QueueSettings = QueueSettings()
    models_dir: Path | None = None
    defaults: DefaultSettings = DefaultSettings()
    kv_store: KvStoreSettings = KvStoreSettings()
    memory_watch: MemoryWatchSettings = MemoryWatchSettings()
    history: HistorySettings = HistorySettings()
    capture: CaptureSettings = CaptureSettings()
    restore: Flag = False
    models: Annotated[dict[Name, ModelSettings], Field(max_length=10_000)] = Field(default_factory=dict)
    groups: Annotated[dict[Name, GroupSettings], Field(max_length=10_000)] = Field(default_factory=dict)

    def policy(self) -> Policy:
        """Return the planner's policy where nobody decides."""
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
        """Return the limits that the scheduler keeps to."""
        return replace(_LIMITS, **self.queue.model_dump(), drain=self.server.drain)


def _bytes(mebibytes: dict[str, int]) -> dict[str, int]:
    return {name: count << 20 for name, count in mebibytes.items()}


def _host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of `host:port`; the host of `[::1]:80` has no brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
