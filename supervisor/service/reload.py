"""The configuration while the daemon runs: read again, checked whole, then taken over in one go.

Nothing changes before everything is known to be right. What changes then, changes without a pause: models that are
launched otherwise end after their requests and are started again, removed ones end after their requests, the rest goes
on as it is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias

import structlog

from supervisor.config import Settings
from supervisor.config.current import Current
from supervisor.config.load import Loaded, passed_over
from supervisor.config.settings import HubSettings
from supervisor.config.shared import Shared
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.models.reload import Changes, reconcile
from supervisor.engines.kind import Planning
from supervisor.engines.kinds import Parts
from supervisor.errors import ConfigError, SupervisorError
from supervisor.files.folder import scan
from supervisor.llamacpp.program import Program
from supervisor.models.configured import configured_models, with_shared
from supervisor.pool.pool import Pool

WATCH_SECONDS = 1.0
_FIXED = {
    "server": (
        *("host", "port", "listen", "tls_cert", "tls_key", "tls_client_ca", "max_body_mib", "max_buffered_mib"),
        "tracing",
    ),
    "hub": tuple(HubSettings.model_fields),
}
"""Settings that count from the next start on."""

Signature: TypeAlias = tuple[object, ...]
_log = structlog.get_logger()


@dataclass(frozen=True)
class Configured:
    """Settings and the file that they come from. `loaded`: the same with the places of everything."""

    settings: Settings
    path: Path | None
    loaded: Loaded


@dataclass(frozen=True)
class Source:
    """Where settings come from.

    Attributes:
        first: what the file says when the daemon starts.
        read: finds and reads the configuration as at the start. Raises ConfigError.
        check: raises where the daemon could not run with these settings. Called before anything changes.
        clock: seconds since 1970.
        shared: the cluster's configuration that counts besides when the daemon starts.
    """

    first: Configured
    read: Callable[[], Configured]
    check: Callable[[Settings], None]
    clock: Callable[[], float]
    shared: Shared | None = None


class Reloader:
    """Takes over what the configuration says.

    Args:
        current: where the settings in force are held. Everybody who needs one asks there.
        registry: where the models are.

    Attributes:
        listeners: are told when the file was taken over.
    """

    def __init__(
        self,
        current: Current,
        registry: Registry,
        kinds: Parts[Planning],
        engine: tuple[Program, Pool],
        source: Source,
    ) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._current, self._registry, self._kinds = current, registry, kinds
        self._program, self._pool = engine
        self._source = source
        self._path = source.first.path
        self._own, self._shared = source.first.loaded, source.shared
        self._loaded = with_shared(self._own, self._shared)
        self._models = Registry(registry, registry.defaults)
        self._loaded_at = source.clock()
        self._error: SupervisorError | None = None
        self._first = current.settings
        self._restart: tuple[str, ...] = ()
        self._seen = self._signature()
        self._turn = asyncio.Lock()

    def status(self) -> dict[str, object]:
        """`path`, `loaded_at`, `error` (of the last attempt: `code`, `message`; or null), `restart_needed` (keys)."""
        error = self._error
        return {
            "path": None if self._path is None else str(self._path),
            "loaded_at": self._loaded_at,
            "error": None if error is None else {"code": error.code, "message": error.message},
            "restart_needed": list(self._restart),
        }

    @property
    def loaded(self) -> Loaded:
        """The configuration in force, with the places of everything."""
        return self._loaded

    @property
    def shared(self) -> Shared | None:
        """The version of the cluster's configuration that is in force; None: there is none."""
        return self._shared

    def configures(self, model: str) -> bool:
        """Return whether the configuration, its folder of models included, has the model, or it is built in."""
        return model in self._models

    async def reload(self) -> dict[str, object]:
        """Read the configuration and take it over; what changed. Raises ConfigError and its like, then all stays."""
        async with self._turn:
            try:
                changes = await self._reload()
            except SupervisorError as error:
                self._error = error
                _log.warning("config_refused", code=error.code, reason=error.message)
                raise
        _log.info("config_reloaded", **asdict(changes), restart_needed=self._restart)
        for tell in self.listeners:
            tell()
        return {**asdict(changes), "restart_needed": list(self._restart)}

    async def share(self, shared: Shared) -> Changes:
        """Take over another version of the cluster's configuration; what changed. Raises as `reload`."""
        async with self._turn:
            loaded, models = await asyncio.to_thread(self._prepared, self._own, shared)
            self._shared = shared
            return self._take_over(loaded, models)

    async def try_shared(self, shared: Shared) -> None:
        """Raise what taking it over would raise. Nothing changes."""
        async with self._turn:
            await asyncio.to_thread(self._prepared, self._own, shared)

    async def reload_quietly(self) -> None:
        """The same for who waits for no answer: what is wrong is in the log, and in the status where it has a code.

        A bug that a file brings out ends nothing: the daemon goes on with what it has, and looks at the next one.
        """
        try:
            await self.reload()
        except SupervisorError:
            pass
        except Exception:  # noqa: BLE001 - a bug, which is logged
            _log.exception("config_not_read")

    async def watch(self) -> None:
        """Reload whenever the file, or what lies in `models_dir`, has changed and then held still for one look."""
        before = self._seen
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not self._current.settings.server.watch_config:
                continue
            now = await asyncio.to_thread(self._signature)
            if now == before and now != self._seen:
                await self.reload_quietly()
            before = now

    async def _reload(self) -> Changes:
        self._seen = await asyncio.to_thread(self._signature)
        found = await asyncio.to_thread(self._source.read)
        if found.path != self._path:
            why = passed_over(self._path) if self._path is not None else None
            raise ConfigError(
                f"The daemon was started with {self._path or 'no configuration file'}, and now "
                f"{found.path or 'none'} would be used. {why + ' Or' if why else 'To take it over,'} start the daemon "
                "again."
            )
        loaded, models = await asyncio.to_thread(self._prepared, found.loaded, self._shared)
        self._own = found.loaded
        self._error, self._loaded_at = None, self._source.clock()
        return self._take_over(loaded, models)

    def _prepared(self, own: Loaded, shared: Shared | None) -> tuple[Loaded, Registry]:
        """The new settings and their models, once everything is checked."""
        loaded = with_shared(own, shared)
        settings = loaded.settings
        self._source.check(settings)
        models = configured_models(settings)
        if settings.engine.path != self._current.settings.engine.path:
            self._program.check_other(settings.engine.path)
        _, changes = reconcile(self._models, models, self._registry)
        elsewhere = settings.models.keys() - own.settings.models.keys()  # shared models may lie on other nodes alone
        for name in (*changes.added, *changes.relaunched):
            self._check_launch(models.find(name), must_exist=name in changes.relaunched and name not in elsewhere)
        return loaded, models

    def _check_launch(self, entry: ModelEntry, *, must_exist: bool) -> None:
        """Refuse what would fail: an engine that is ended for it could not come back."""
        try:
            self._kinds.of(entry).check(entry)
        except SupervisorError as error:
            raise ConfigError(f"models.{entry.id}: {error.message}") from None
        if must_exist and entry.path is not None and not os.path.isfile(entry.path):
            raise ConfigError(f"models.{entry.id}: {entry.path} does not exist.")

    def _take_over(self, loaded: Loaded, models: Registry) -> Changes:
        """No await from here on: nobody sees half of it."""
        settings = loaded.settings
        result, changes = reconcile(self._models, models, self._registry)
        other_engine = settings.engine.path != self._current.settings.engine.path
        self._registry.become(result)
        self._models, self._loaded = models, loaded
        self._current.take_over(settings)
        self._restart = _differing(self._first, settings)
        self._pool.policies_changed()
        for name in changes.removed:
            self._pool.ask_unload(name)
        if other_engine:
            others = tuple(entry.id for entry in self._registry if entry.id not in changes.added)
            changes = replace(changes, relaunched=others, adjusted=())
        for name in changes.relaunched:
            self._pool.launch_changed(name)
        return changes

    def _signature(self) -> Signature:
        """Changes when the file does, or when models come to `models_dir` or leave it."""
        folder = self._current.settings.models_dir
        return _stamp(self._path), scan(Path(folder)) if folder is not None else ()


def _differing(first: Settings, now: Settings) -> tuple[str, ...]:
    """The settings that a new start would change."""
    return tuple(
        f"{part}.{key}"
        for part, keys in _FIXED.items()
        for key in keys
        if getattr(getattr(first, part), key) != getattr(getattr(now, part), key)
    )


def _stamp(path: Path | None) -> Signature:
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return (False,)
    return (True,) if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
