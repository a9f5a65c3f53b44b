"""One model's status as the REST API and the CLI show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from supervisor.errors import ModelDoesNotFit
from supervisor.proxy.metered import NO_ROOM
from supervisor.service.abilities import Abilities


@dataclass(frozen=True)
class LoadError:
    """Why a model could not be loaded."""

    code: str
    message: str
    log_lines: Sequence[str]


@dataclass(frozen=True)
class EngineShown:
    """One engine: its number, and what it does. `slots`: None until it is ready."""

    engine: int
    state: str
    pid: int | None
    leases: int
    slots: int | None


@dataclass(frozen=True)
class VariantShown:
    """A variant there was to choose: whether it fits at all, and `well`: whole on devices with the wanted context.

    `tokens_per_second` is foretold, of all but the chosen one by its size; null where nothing can be said.
    """

    name: str
    size_bytes: int | None
    fits: bool | None
    well: bool
    note: str
    chosen: bool
    tokens_per_second: float | None


@dataclass(frozen=True)
class Remark:
    """What else has to be said of a model: in a sentence, and of the variants there were to choose from."""

    note: str | None = None
    variants: Sequence[VariantShown] = ()


@dataclass(frozen=True)
class ModelStatus:
    """A model now. Of several engines that one counts that is nearest to being of use.

    Attributes:
        hub: the reference of a model of the hub.
        progress: 0 to 1.
        download: `Progress.to_json`; None: there is none.
        n_ctx: tokens of one slot.
        loaded_at, expires_at, failed_at: seconds since 1970; when it leaves for idleness; of the `error`.
        footprint: bytes by device.
        given: options by name that hold until it is unloaded.
        plan: as `plan --json`, without its estimate.
        abilities: what it can do; None until its file was read for a load.
        fallbacks: how it is started otherwise than its options say, a sentence each.
    """

    id: str
    aliases: Sequence[str]
    source: str
    path: str | None
    hub: str | None
    state: str
    stage: str | None
    progress: float | None
    download: Mapping[str, Any] | None
    pid: int | None
    n_ctx: int | None
    n_slots: int | None
    leases: int
    waiting: int
    loaded_at: float | None
    load_seconds: float | None
    rss_bytes: int | None
    size_bytes: int | None
    footprint: Mapping[str, int] | None
    pinned: bool
    expires_at: float | None
    given: Mapping[str, Any]
    plan: Mapping[str, Any] | None
    error: LoadError | None
    failed_at: float | None
    engines: Sequence[EngineShown]
    note: str | None
    variants: Sequence[VariantShown]
    abilities: Abilities | None
    fallbacks: Sequence[str]

    def by_itself(self) -> ModelStatus:
        """Return the status without what names other models: who would have to leave, and why there is no room."""
        plan = None if self.plan is None else {**self.plan, "why": []}
        error = self.error
        if error is not None and error.code == ModelDoesNotFit.code:
            error = replace(error, message=NO_ROOM, log_lines=())
        return replace(self, plan=plan, error=error)

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        found: dict[str, Any] = _JSON.dump_python(self, mode="json")
        return found


_JSON = TypeAdapter(ModelStatus)
