"""Convert a `config.yaml` of llama-swap (its keys as of v250) into our settings."""

from __future__ import annotations

import re
import shlex
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath

from supervisor.config.document import NotADocument, read_document
from supervisor.config.expand import PLACES
from supervisor.config.imports.arguments import read_arguments
from supervisor.config.imports.carried import Carried
from supervisor.config.imports.swap_commands import as_command
from supervisor.config.imports.swap_groups import MOST_MODELS, SwapGroup, apart, pinned
from supervisor.config.settings import Settings
from supervisor.core.launch.environment import is_setting
from supervisor.core.models.filters import PROTECTED
from supervisor.core.text.secrets import is_likely_secret, without_credentials
from supervisor.errors import ConfigError

_MACRO = re.compile(r"\$\{(?!env\.)([\w-]+)\}")
_VARIABLE = re.compile(r"\$\{env\.\w+\}")
_MOST_TEXT = 1 << 16  # characters of a command, once macros are put in
_MOST_TEXTS = 1 << 22  # of all commands and variables
_PORT = re.compile(r"--port(?:=|\s+)\$\{PORT\}")
_SILENT = {"startPort", "macros", "models", "groups", "hooks", "routing", "apiKeys", "globalTTL", "unloadTimeout"}
_OUR_PARTS = Settings.model_fields.keys() - {"models", "groups"}
_OUR_SOURCES = {"file", "source"}
_MODEL_SILENT = {"cmd", "macros", "env", "aliases", "ttl", "concurrencyLimit", "filters", "proxy", "checkEndpoint"}
_COMMAND_SILENT = _MODEL_SILENT | {"cmdStop", "useModelName"}


class _Macros(ChainMap[str, object]):
    """Macros by name. `used`: characters of the texts that they were put into, of all models."""

    used: list[int]

    @classmethod
    def of_all(cls, data: Mapping[str, object]) -> _Macros:
        """Return those of every model."""
        found = cls(_mapping(data.get("macros")))
        found.used = [0]
        return found

    def of_model(self, name: str, given: Mapping[str, object]) -> _Macros:
        """Return those of one model."""
        found = _Macros({"MODEL_ID": name}, _mapping(given.get("macros")), *self.maps)
        found.used = self.used
        return found


def from_llama_swap(text: str, name: str = "config.yaml") -> Carried:
    """Return the converted configuration.

    Raise ConfigError where the text is no YAML, or has no commands, as our own file.
    """
    try:
        data = read_document(text).data
    except NotADocument as error:
        raise ConfigError(f"{name}:{error.place.line}:{error.place.column}: {error.message}") from None
    if _is_ours(data):
        raise ConfigError(f"{name} is a configuration of this program already: `supervisor serve --config {name}`.")
    found = Carried()
    _top(data, found)
    binaries: set[str] = set()
    macros = _Macros.of_all(data)
    for model, settings in _mapping(data.get("models")).items():
        given = _mapping(settings)
        _model(model, given, macros.of_model(model, given), (found, binaries))
    _engine(binaries, found)
    _groups(data, found)
    _further(data, found)
    return found


def _is_ours(data: Mapping[str, object]) -> bool:
    models = [_mapping(model) for model in _mapping(data.get("models")).values()]
    named = any(model.keys() & _OUR_SOURCES for model in models)
    return not any("cmd" in model for model in models) and (named or bool(data.keys() & _OUR_PARTS))


def _top(data: Mapping[str, object], found: Carried) -> None:
    keys = [key for key in _list(data.get("apiKeys")) if isinstance(key, str)]
    if named := [key for key in keys if _VARIABLE.fullmatch(key)]:
        found.section("server")["api_keys"] = named
    if left_out := len(keys) - len(named):
        found.note(
            "apiKeys",
            f"{left_out} left out, because no secret leaves an import: set $SUPERVISOR_API_KEY, or write them below "
            "server.api_keys (at least 8 characters each)",
        )
    if _number(data.get("globalTTL")) > 0:
        found.section("defaults")["ttl"] = data["globalTTL"]
    if _number(data.get("unloadTimeout")) > 0:
        found.section("engine")["stop_timeout"] = data["unloadTimeout"]
    for key in sorted(set(data) - _SILENT):
        found.note(key, "has no counterpart here")


def _model(name: str, given: Mapping[str, object], known: _Macros, into: tuple[Carried, set[str]]) -> None:
    found, binaries = into
    where = f"models.{name}"
    notes: list[str] = []
    program, *arguments = _words(str(given.get("cmd", "")), known, notes.append) or [""]
    if not program:
        found.note(where, "; ".join(notes) or "it has no command, and is left out")
        return
    if not PurePath(program).name.startswith("llama-server"):
        _command(name, given, known, found)
        return
    for note in notes:
        found.note(where, note)
    binaries.add(program)
    read = read_arguments(arguments)
    for note in read.notes:
        found.note(where, note)
    settings = found.section("models", name)
    settings.update(read.settings)
    settings.update(_managed(name, given, known, found))
    for key in sorted(set(given) - _MODEL_SILENT):
        found.note(where, f"{key} has no counterpart here")


def _command(name: str, given: Mapping[str, object], macros: _Macros, found: Carried) -> None:
    """Carry a model that another program serves."""
    where = f"models.{name}"
    words = _words(str(given.get("cmd", "")), macros, lambda text: found.note(where, text), PLACES)
    stop = _words(str(given.get("cmdStop", "")), macros, lambda text: found.note(where, text), PLACES)
    settings = as_command(given, words, stop, lambda text: found.note(where, text))
    if settings is None:
        return
    managed = _managed(name, given, macros, found)
    if "concurrency" in managed:
        settings["slots"] = managed.pop("concurrency")
    found.section("models", name).update({**settings, **managed})
    for key in sorted(set(given) - _COMMAND_SILENT):
        found.note(where, f"{key} has no counterpart here")


def _managed(name: str, given: Mapping[str, object], macros: _Macros, found: Carried) -> dict[str, object]:
    """Return the settings beside the command."""
    settings: dict[str, object] = {}
    named = [alias.get("id") if isinstance(alias, dict) else alias for alias in _list(given.get("aliases"))]
    if aliases := [str(alias) for alias in named if alias is not None]:
        settings["aliases"] = aliases
    ttl = given.get("ttl")
    if _number(ttl) > 0:
        settings["ttl"] = ttl
    elif ttl == 0:
        settings["ttl"] = None
    if _number(given.get("concurrencyLimit")) > 0:
        settings["concurrency"] = given["concurrencyLimit"]
    if env := _environment(name, [_replaced(str(item), macros) for item in _list(given.get("env"))], found):
        settings["env"] = env
    if filters := _filters(name, _mapping(given.get("filters")), found):
        settings["filters"] = filters
    return settings


def _environment(name: str, items: list[str], found: Carried) -> dict[str, str]:
    """Return variables by name; a secret becomes a reference to the variable of that name."""
    kept: dict[str, str] = {}
    for item in items:
        variable, equals, value = item.partition("=")
        if not equals:
            found.note(f"models.{name}", "an entry of env without a value is left out")
        elif is_setting(variable):
            found.note(f"models.{name}", f"{variable} of env is left out: give it among the model's options")
        elif not _VARIABLE.fullmatch(value) and (is_likely_secret(variable) or without_credentials(value) != value):
            kept[variable] = f"${{env.{variable}:-}}"
            found.note(f"models.{name}", f"the value of {variable} is left out: set the variable for the daemon")
        else:
            kept[variable] = value
    return kept


def _filters(name: str, given: Mapping[str, object], found: Carried) -> dict[str, object]:
    strip = given.get("stripParams", given.get("strip_params"))
    names = strip.split(",") if isinstance(strip, str) else [str(item) for item in _list(strip)]
    filters: dict[str, object] = {}
    if kept := [item.strip() for item in names if item.strip() and item.strip() not in PROTECTED]:
        filters["strip"] = kept
    fixed = {key: value for key, value in _mapping(given.get("setParams")).items() if key not in PROTECTED}
    for key in [key for key, value in fixed.items() if isinstance(value, str) and is_likely_secret(key)]:
        del fixed[key]
        found.note(f"models.{name}", f"filters.setParams.{key} is left out: it may hold a secret")
    if fixed:
        filters["set"] = fixed
    if given.get("setParamsByID"):
        found.note(f"models.{name}", "filters.setParamsByID: make a model of its own for each id")
    return filters


def _words(command: str, macros: _Macros, note: Callable[[str], None], places: Collection[str] = ()) -> list[str]:
    """Return the words of the command as a shell would see them, without comment lines and line ends.

    places: what is put in when an engine is started; none: an option that says the port is left out.
    """
    lines = [line for line in command.splitlines() if not line.lstrip().startswith("#")]
    text = _replaced(" ".join(line.rstrip().removesuffix("\\") for line in lines), macros)
    text = text if places else _PORT.sub("", text)
    if found := next((one for one in _MACRO.finditer(text) if one[1] not in places), None):
        note(f"{found.group()} means nothing here")
    try:
        return shlex.split(text)
    except ValueError as error:
        note(f"its command cannot be read: {error}")
        return []


def _replaced(text: str, macros: _Macros) -> str:
    for _ in range(10):  # macros may use macros
        grown = sum(len(str(macros.get(one[1], one[0]))) for one in _MACRO.finditer(text))
        if len(text) + grown > _MOST_TEXT:
            raise ConfigError(f"Macros expand a command to more than {_MOST_TEXT:,} characters.")
        before, text = text, _MACRO.sub(lambda one: str(macros.get(one[1], one[0])), text)
        if text == before:
            break
    macros.used[0] += len(text)
    if macros.used[0] > _MOST_TEXTS:
        raise ConfigError(f"Commands and variables have more than {_MOST_TEXTS:,} characters, once macros are put in.")
    return text


def _engine(binaries: set[str], found: Carried) -> None:
    paths = sorted(binary for binary in binaries if "/" in binary or "\\" in binary)
    if len(binaries) == 1 and paths:
        found.section("engine")["path"] = paths[0]
    elif paths:
        found.note("", f"models run different programs ({', '.join(paths)}); one llama-server serves all here")


def _groups(data: Mapping[str, object], found: Carried) -> None:
    router = _mapping(_mapping(data.get("routing")).get("router"))
    settings = _mapping(router.get("settings"))
    groups = {**_mapping(data.get("groups")), **_mapping(settings.get("groups"))}
    known = found.models
    swapped = {name: _swap_group(_mapping(group), known) for name, group in groups.items()}
    for name, group in swapped.items():
        if not group.members:
            found.note(f"groups.{name}", "none of its members is here")
        elif group.persistent and group.exclusive:
            found.note(f"groups.{name}", "its load unloads no other models here: they run beside each other")
    for member in pinned(swapped.values()):
        known[member]["pin"] = True
    if len(known) > MOST_MODELS:
        found.note("groups", f"are left out: there are more than {MOST_MODELS} models")
    else:
        there = {name: group for name, group in swapped.items() if group.members}
        for name, members in apart(there, list(known)).items() if there else ():
            found.section("groups", name).update(members=members, rule="exclusive")
    alone = [model for model in known if not any(model in group.members for group in swapped.values())]
    if alone and len(known) > 1:
        which = "all models" if len(alone) == len(known) else ", ".join(alone)
        found.note("", f"llama-swap runs models of no group one at a time; here as many run as fit: {which}")
    if settings.get("matrix"):
        found.note("routing.router.settings.matrix", "is left out: here memory decides what runs together")


def _swap_group(group: Mapping[str, object], known: Mapping[str, object]) -> SwapGroup:
    members = tuple(str(member) for member in _list(group.get("members")) if str(member) in known)
    swap, exclusive = group.get("swap", True) is not False, group.get("exclusive", True) is not False
    return SwapGroup(members, swap, exclusive, group.get("persistent") is True)


def _further(data: Mapping[str, object], found: Carried) -> None:
    known = found.models
    for name in _list(_mapping(_mapping(data.get("hooks")).get("on_startup")).get("preload")):
        if isinstance(name, str) and name in known:
            known[name]["preload"] = True
        else:
            found.note("hooks.on_startup.preload", f"there is no model {name!r}")
    scheduler = _mapping(_mapping(_mapping(data.get("routing")).get("scheduler")).get("settings"))
    for name, priority in _mapping(_mapping(scheduler.get("fifo")).get("priority")).items():
        if name in known and isinstance(priority, int):
            known[name]["priority"] = max(-30, min(30, priority))


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
