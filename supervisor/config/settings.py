"""The settings there are, with their defaults. Unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from supervisor.core.devices.reserves import Reserves

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8686


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Strict):
    """Where the daemon listens and who may use it."""

    host: str = DEFAULT_HOST
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    api_keys: tuple[Annotated[str, Field(min_length=8, pattern=r"^[!-~]+$")], ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_mib: Annotated[int, Field(ge=1)] = 256


class EngineSettings(_Strict):
    """Which `llama-server`, and how patient we are with it. Times are seconds."""

    path: str | None = None
    stall_timeout: Annotated[float, Field(gt=0)] = 120
    stop_timeout: Annotated[float, Field(gt=0)] = 10


Mebibytes = Annotated[int, Field(ge=0)]


class DeviceSettings(_Strict):
    """RPC workers that count as devices, and what is kept back, in MiB by device name (`CUDA0`, `CPU`) or back end."""

    rpc: tuple[Annotated[str, Field(pattern=r"^[^\s,:]+:\d{1,5}$")], ...] = ()
    reserve_mib: dict[str, Mebibytes] = Field(default_factory=dict)
    engine_reserve_mib: dict[str, Mebibytes] = Field(default_factory=dict)

    def reserves(self) -> Reserves:
        """The same in bytes, over the defaults."""
        return Reserves(_bytes(self.reserve_mib), _bytes(self.engine_reserve_mib))


class ModelOptions(_Strict):
    """How a model is launched; names and meanings are llama-server's own."""

    ctx_size: Annotated[int, Field(ge=0)] | None = None
    parallel: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    ubatch_size: Annotated[int, Field(ge=1)] | None = None
    n_gpu_layers: Annotated[int, Field(ge=0)] | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    embeddings: Literal["auto", "on", "off"] = "auto"
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = None
    skip_chat_parsing: bool = False
    extra_args: tuple[str, ...] = ()


class ModelSettings(ModelOptions):
    """One model of the catalogue: a GGUF file and how to launch it.

    `env` and `chat_template_file` reach the machine: only who writes the configuration may set them, no REST client.
    """

    file: str
    aliases: tuple[str, ...] = ()
    chat_template_file: str | None = None
    env: dict[str, str] = Field(default_factory=dict)


class Settings(_Strict):
    """The whole file."""

    server: ServerSettings = ServerSettings()
    engine: EngineSettings = EngineSettings()
    devices: DeviceSettings = DeviceSettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict)


def _bytes(mebibytes: dict[str, int]) -> dict[str, int]:
    return {name: count << 20 for name, count in mebibytes.items()}
