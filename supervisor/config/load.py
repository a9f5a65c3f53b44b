"""Find the configuration file, read it, and say what is wrong with it."""

from __future__ import annotations

import copy
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PosixPath
from typing import TypeVar

from pydantic import ValidationError

from supervisor.config.checks import Complaint, certificates, complaints
from supervisor.config.document import Document, Loc, NotADocument, Place, read_document
from supervisor.config.expand import expand
from supervisor.config.faults import ConfigFault, config_error, fault_at, validation_faults
from supervisor.config.options import LoraSettings, chosen_from
from supervisor.config.settings import DefaultSettings, ModelSettings, Settings
from supervisor.config.sources import absolute, engine_of, is_llama_swap, path_of
from supervisor.core.options import LaunchOptions, names_file, options_of
from supervisor.errors import ConfigError

_MOST_BYTES = 4 << 20
FILE_NAME = "supervisor.yaml"
KEY_VARIABLE = "SUPERVISOR_API_KEY"
_ATTEMPTS = 5
_FILES = tuple(row.name for row in options_of(LaunchOptions) if names_file(row.kind))
_TLS_FILES = ("tls_cert", "tls_key", "tls_client_ca")
_NOTHING: tuple[object, ...] = (None, ())
_MISSING = object()
_Model = TypeVar("_Model", bound=DefaultSettings)


@dataclass(frozen=True)
class Loaded:
    """Settings, and the text that they come from.

    Attributes:
        path: None where there is no file.
        overridden: where the command line says another value than the file.
        shared: what the settings have of a cluster's configuration, where they have any.
    """

    settings: Settings
    document: Document
    path: Path | None
    overridden: frozenset[Loc] = frozenset()
    shared: Loaded | None = None

    def holder(self, loc: Loc) -> Loaded | None:
        """Return in which text a value stands: this one, or the cluster's; None: in neither."""
        texts = (self, self.shared)
        return next((one for one in texts if one is not None and loc in one.document.values), None)


class FoundPath(PosixPath):
    """A configuration file that was found in the working folder and not named: it counts while nobody else writes it.

    That is looked at again when it is read, of the very file that is open then.
    """


def find_config(explicit: str | None, env: Mapping[str, str], cwd: Path, user_folder: Path) -> Path | None:
    """Return the file to use: `--config`, `$SUPERVISOR_CONFIG`, the working folder's, the user's; None for defaults.

    The working folder's file counts only if it belongs to the user and nobody else can write it, because a
    configuration can name programs to run.
    """
    for given in (explicit, env.get("SUPERVISOR_CONFIG")):
        if given:
            path = Path(os.path.expanduser(given)).absolute()
            if not os.path.isfile(path):
                how = "is a folder; name the file in it" if os.path.isdir(path) else "does not exist"
                raise ConfigError(f"The configuration file {path} {how}.")
            return path
    here = cwd / FILE_NAME
    if os.path.isfile(here) and _is_private(here):
        return here if sys.platform == "win32" else FoundPath(here)
    user = user_folder / FILE_NAME
    return user if os.path.isfile(user) else None


@dataclass(frozen=True)
class Start:
    """The settings on the command line of `serve`, which go over the file; None leaves the file's."""

    host: str | None = None
    port: int | None = None
    engine: str | None = None
    insecure: bool = False

    def over(self, settings: Settings) -> Settings:
        """Return the effective settings: these over the file's."""
        given = {"host": self.host, "port": self.port}
        server = settings.server.model_copy(update={key: value for key, value in given.items() if value is not None})
        named = absolute(Path.cwd(), self.engine) if self.engine and os.sep in self.engine else self.engine
        engine = settings.engine.model_copy(update={"path": named} if named else {})
        return settings.model_copy(update={"server": server, "engine": engine})

    @property
    def overridden(self) -> frozenset[Loc]:
        """Places of the settings that it says."""
        given = {("server", "host"): self.host, ("server", "port"): self.port, ("engine", "path"): self.engine or None}
        return frozenset(loc for loc, value in given.items() if value is not None)


NOBODY_LISTENS = Start(insecure=True)


def _nothing(_: object) -> Iterator[Complaint]:
    return iter(())


@dataclass(frozen=True)
class Extent:
    """What a text may say of all that a configuration can.

    Attributes:
        refused: yields what may not stand there, by the data as it is written. What is there counts as absent.
        complaints: yields what else is wrong, by the settings.
    """

    refused: Callable[[Mapping[str, object]], Iterable[Complaint]] = _nothing
    complaints: Callable[[Settings], Iterable[Complaint]] = _nothing


EVERYTHING = Extent()


def passed_over(path: Path) -> str | None:
    """Return the reason why a file of the working folder is not used, and what to do; None if nothing forbids it."""
    if not os.path.isfile(path):
        return f"{path} is gone. Put it back."
    if not _is_private(path):
        return f"{path} can be written by others, so it is not used: `chmod go-w {path}`, or name it with --config."
    return None


def load_settings(path: Path | None, env: Mapping[str, str], start: Start = NOBODY_LISTENS) -> Settings:
    """Return the validated settings of the file (defaults without one) plus `$SUPERVISOR_API_KEY`.

    Raises ConfigError naming the file, line and column of everything that is wrong.
    """
    return load(path, env, start).settings


def load(path: Path | None, env: Mapping[str, str], start: Start = NOBODY_LISTENS) -> Loaded:
    """Return the settings with the places of everything. What is valid here is valid for `check`, `serve` and a reload.

    start: of a daemon that is to run with it. Raises ConfigError.
    """
    return load_text(_text(path) if path is not None else "", path, env, start)


def load_text(
    text: str,
    path: Path | None,
    env: Mapping[str, str] | None,
    start: Start = NOBODY_LISTENS,
    extent: Extent = EVERYTHING,
) -> Loaded:
    """Return the same of a text. path: what it is called. env: None where it may use no variables. Raises ConfigError.

    extent: what may stand in it.
    """
    try:
        document = read_document(text)
    except NotADocument as error:
        told = error.message + _preset_hint(path)
        raise config_error([_fault(path, told, error.place, error.loc)]) from None
    data, misuses = expand(_without_empty(document.data), env)
    faults = {misuse.loc: fault_at(document, path, misuse.loc, misuse.message) for misuse in misuses}
    for one in extent.refused(data):
        faults[one.loc] = fault_at(document, path, one.loc, one.message, key=one.key)
    own_key = _add_key(data, env or {})
    settings, wrong = _validated(data, faults.keys(), document, path)
    for loc, fault in wrong.items():
        mine = ".".join(map(str, loc)) == own_key
        faults.setdefault(loc, ConfigFault(fault.message, KEY_VARIABLE) if mine else fault)
    found = list(faults.values())
    if settings is not None:
        placed = _with_absolute_files(start.over(settings), path)
        further = chain(
            complaints(start.over(settings), insecure=start.insecure), certificates(placed), extent.complaints(settings)
        )
        further_of_file = [one for one in further if not one.follows_from(faults)]
        found += [fault_at(document, path, one.loc, one.message, key=one.key) for one in further_of_file]
    if found or settings is None:
        raise config_error([_of_llama_swap(path)] if is_llama_swap(document.data) else found)
    return Loaded(_with_absolute_files(start.over(settings), path), document, path, start.overridden)


def _validated(
    data: dict[str, object], misused: Iterable[Loc], document: Document, path: Path | None
) -> tuple[Settings | None, dict[Loc, ConfigFault]]:
    """Return the settings without their faulty parts, and the faults; None where too much is faulty."""
    kept = copy.deepcopy(data)
    for loc in sorted(misused, key=_from_the_end, reverse=True):
        _leave_out(kept, loc)
    found: dict[Loc, ConfigFault] = {}
    for attempt in range(_ATTEMPTS):
        try:
            return Settings.model_validate(kept), found
        except ValidationError as error:
            wrong = validation_faults(error, document, path)
            if attempt == 0:
                found = wrong
            for loc in sorted(wrong, key=_from_the_end, reverse=True):
                _leave_out(kept, loc)
    return None, found


def _from_the_end(loc: Loc) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key by which later entries of a list come first, so that the numbers of the others stay."""
    return tuple((1, part, "") if isinstance(part, int) else (0, 0, part) for part in loc)


def _leave_out(data: object, loc: Loc) -> None:
    """Leave the value out; where it is missing, the one that it belongs to."""
    above: list[tuple[object, str | int]] = []
    for part in loc:
        inner = _inside(data, part)
        if inner is _MISSING:
            break
        above.append((data, part))
        data = inner
    if not above:
        return
    holder, last = above[-1]
    if isinstance(holder, list) and isinstance(last, int):
        del holder[last]
    elif isinstance(holder, dict) and loc[:1] == ("models",) and len(above) == 2 and not isinstance(data, dict):
        holder[last] = {}  # the name is there all the same
    elif isinstance(holder, dict):
        del holder[last]


def _inside(data: object, part: str | int) -> object:
    """Return the part of a mapping or a list."""
    if isinstance(data, dict):
        return data.get(part, _MISSING)
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return data[part]
    return _MISSING


def _preset_hint(path: Path | None) -> str:
    if path is None or path.suffix != ".ini":
        return ""
    return f"; a preset of llama-server becomes a configuration with `supervisor config import {path}`"


def _of_llama_swap(path: Path | None) -> ConfigFault:
    told = f"a configuration of llama-swap; `supervisor config import {path} -o {FILE_NAME}` makes one of ours of it"
    return ConfigFault(told, file=str(path), line=1, column=1)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if isinstance(path, FoundPath) and not _only_mine(os.fstat(file.fileno())):
                raise ConfigError(f"{path} can be written by others, so it is not used. Or name it with --config.")
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; a configuration is never that large.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise config_error([_fault(path, f"not UTF-8: {error.reason}", place)]) from None


def _fault(path: Path | None, message: str, place: Place, loc: tuple[str | int, ...] = ()) -> ConfigFault:
    return ConfigFault(message, ".".join(map(str, loc)), str(path), place.line, place.column)


def _without_empty(data: Mapping[str, object]) -> dict[str, object]:
    """Return the data without sections and models that are empty, which count as absent."""
    given = {key: value for key, value in data.items() if value is not None or key == "models_dir"}
    if isinstance(models := given.get("models"), dict):
        given["models"] = {name: {} if model is None else model for name, model in models.items()}
    return given


def _add_key(data: dict[str, object], env: Mapping[str, str]) -> str:
    """Add the environment's key; return where it went, as a dotted name."""
    key = env.get(KEY_VARIABLE)
    if not key:
        return ""
    if data.get("server") is None:
        data["server"] = {}
    server = data["server"]
    if not isinstance(server, dict):
        return ""  # something else is wrong here
    known = [] if server.get("api_keys") is None else server["api_keys"]
    if not isinstance(known, list):
        return ""  # likewise
    server["api_keys"] = [*known, key]
    return f"server.api_keys.{len(known)}"


def _with_absolute_files(settings: Settings, path: Path | None) -> Settings:
    """Return the settings with relative files made absolute against the configuration file."""
    base = path.parent if path is not None else Path.cwd()
    models = {name: _source_under(base, _files_under(base, model)) for name, model in settings.models.items()}
    update: dict[str, object] = {"models": models, "defaults": _files_under(base, settings.defaults)}
    if settings.models_dir is not None:
        update["models_dir"] = absolute(base, settings.models_dir)
    certified = {name: absolute(base, value) for name in _TLS_FILES if (value := getattr(settings.server, name))}
    if certified:
        update["server"] = settings.server.model_copy(update=certified)
    engine = settings.engine.path
    if engine is not None and os.sep in engine:  # otherwise it may be the name of an installed one
        update["engine"] = settings.engine.model_copy(update={"path": absolute(base, engine)})
    if settings.hub.cache is not None:
        update["hub"] = settings.hub.model_copy(update={"cache": absolute(base, settings.hub.cache)})
    return settings.model_copy(update={key: value for key, value in update.items() if key in settings.model_fields_set})


def _source_under(base: Path, model: ModelSettings) -> ModelSettings:
    path = path_of(model)
    if kind := engine_of(model):
        return model.model_copy(update=kind.placed(chosen_from(kind.options, model), partial(absolute, base)))
    if path is None:
        return model
    return model.model_copy(update={"file" if model.file is not None else "source": absolute(base, path)})


def _files_under(base: Path, model: _Model) -> _Model:
    given = {name: getattr(model, name) for name in _FILES}
    return model.model_copy(
        update={name: _under(base, value) for name, value in given.items() if value not in _NOTHING}
    )


def _under(base: Path, value: object) -> object:
    """Return a path made absolute; of adapters, that of each."""
    if isinstance(value, str):
        return absolute(base, value)
    if isinstance(value, LoraSettings):
        return value.model_copy(update={"path": absolute(base, value.path)})
    return tuple(_under(base, one) for one in value) if isinstance(value, tuple) else value


def _is_private(path: Path) -> bool:
    """Tell whether a file, and the link to it if it is one, are this user's, and nobody else may write the file."""
    return _is_mine(path.lstat()) and _only_mine(path.stat())


def _only_mine(found: os.stat_result) -> bool:
    return _is_mine(found) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_mine(found: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or found.st_uid == os.getuid()
