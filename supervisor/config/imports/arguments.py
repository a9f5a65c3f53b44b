"""Convert a command line of llama-server into settings of a model."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from supervisor.config.base import Strict
from supervisor.config.faults import option_fault
from supervisor.config.settings import DefaultSettings
from supervisor.core.launch.extra import spelled
from supervisor.core.launch.rules import NEWER, RULES, rule_of
from supervisor.core.options import LaunchOptions, Way, options_of
from supervisor.core.options import Option as Row
from supervisor.core.options.kinds import Json, Many
from supervisor.core.text.secrets import is_likely_secret

_LOAD_MODES = {
    frozenset({"--no-mmap"}): "none",
    frozenset({"--no-mmap", "--mlock"}): "mlock",
    frozenset({"--mlock"}): "mmap+mlock",
    frozenset({"--mmap", "--mlock"}): "mmap+mlock",
    frozenset({"--mmap"}): "mmap",
    frozenset({"--direct-io"}): "dio",
}
QUIET = frozenset(
    {"--host", "--port", "--reuse-port", "--metrics", "--slots", "--no-ui", "--no-webui"}
    | {"--log-disable", "--no-direct-io", "-ndio"}
)
"""Options that the supervisor sets by itself, or that make no sense behind it: nothing is lost without them."""

NEED_VALUE = frozenset({"--load-mode", "-lm", "--lora", "--lora-scaled", "--mmproj", "-mm", "--spec-type"})
"""Options of a rule of their own that are nothing without a value."""


class Spellings:
    """How the options of a table are written on a command line, and the settings that they become.

    Attributes:
        valued: the option that a flag with a value sets.
        switches: the option that a flag without one sets, and what it sets it to.
        switchable: the row of every flag that is not followed by a plain value.
    """

    def __init__(self, rows: Iterable[Row], settings: type[Strict]) -> None:
        every = tuple(rows)
        self.settings = settings
        self.lists = {row.name for row in every if isinstance(row.kind, Many)}
        self.objects = {row.name for row in every if isinstance(row.kind, Json)}
        self.valued = {flag: row.name for row in every if row.way is Way.VALUE for flag in row.on}
        switches = [row for row in every if row.way is Way.SWITCH]
        self.switches = {flag: (row.name, True) for row in switches for flag in row.on}
        self.switches |= {flag: (row.name, False) for row in switches for flag in row.off}
        others = [row for row in every if row.way in {Way.SWITCH, Way.RULE}]
        self.switchable = {flag: row for row in others for flag in (*row.on, *row.off)}


SPELLINGS = Spellings(options_of(LaunchOptions), DefaultSettings)


class Option(NamedTuple):
    """An option as typed, and the values that follow it."""

    flag: str
    values: tuple[str, ...]


class Read(NamedTuple):
    """The result. `settings`: of a model. `notes`: what could not be carried over."""

    settings: dict[str, object]
    notes: list[str]


def read_arguments(arguments: Sequence[str], spellings: Spellings = SPELLINGS) -> Read:
    """Return the settings that these arguments amount to."""
    reader = _Reader(spellings)
    for option in _options(arguments, reader.notes):
        reader.take(option)
    reader.finish()
    return Read(reader.settings, reader.notes)


def _options(arguments: Sequence[str], notes: list[str]) -> Iterator[Option]:
    """Yield options with the values that follow them; `--x=y` is read as `--x y`."""
    rest = deque(arguments)
    while rest:
        token = rest.popleft()
        flag = spelled(token)
        if flag is None:
            notes.append("a word that belongs to no option is left out")
            continue
        values = [token.partition("=")[2]] if "=" in token else []
        while rest and not _is_option(rest[0]) and not values:
            values.append(rest.popleft())
        yield Option(flag, tuple(values))


def _is_option(token: str) -> bool:
    flag = spelled(token)
    return flag is not None and (flag in RULES or flag.startswith("--"))


class _Reader:
    def __init__(self, spellings: Spellings) -> None:
        self._spellings = spellings
        self.settings: dict[str, object] = {}
        self.notes: list[str] = []
        self._loading: set[str] = set()
        self._adapters: list[dict[str, object]] = []
        self._further_args: list[str] = []

    def take(self, option: Option) -> None:
        """Carry one option over, or note why not."""
        flag, values = option
        if flag in {"-m", "--model"} and values:
            self.settings["file"] = values[0]
        elif flag in {"-hf", "-hfr", "--hf-repo"} and values:
            self.settings["source"] = values[0]
        elif flag in {"-a", "--alias"} and values:
            self.settings["aliases"] = [name.strip() for name in values[0].split(",")]
        elif flag == "--sleep-idle-seconds" and values:
            self._set("ttl", values[0], flag) if values[0] not in {"0", "-1"} else None
        elif flag in self._spellings.switches:
            field, value = self._spellings.switches[flag]
            self.settings[field] = value
            self.notes += [f"{flag} takes no value; what follows it is left out"] if values else []
        elif flag in self._spellings.valued:
            self._valued(self._spellings.valued[flag], option)
        else:
            self._special(option)

    def finish(self) -> None:
        """Settle what several options say together."""
        if "file" in self.settings and self.settings.pop("source", None) is not None:
            self.notes.append("it names a file and a repository; the file counts")
        if self._loading:
            mode = _LOAD_MODES.get(frozenset(self._loading))
            if mode is None:
                self.notes.append(f"{' '.join(sorted(self._loading))}: give `load_mode` instead")
            else:
                self.settings["load_mode"] = mode

    def _valued(self, field: str, option: Option) -> None:
        if not option.values:
            self.notes.append(f"{option.flag}: its value is missing")
            return
        text = option.values[0]
        if (field, text) in {("n_gpu_layers", "auto"), ("parallel", "-1"), ("parallel", "auto"), ("threads", "-1")}:
            return  # that is the default
        if field in {"n_gpu_layers", "spec_draft_ngl"} and text in {"all", "-1", "-2"}:
            text = "999"
        if field in self._spellings.lists:
            parts = text.replace("/", ",").split(",") if field == "tensor_split" else text.split(",")
            self._set(field, [] if text == "none" else parts, option.flag)
        elif field in self._spellings.objects:
            self._set(field, _json(text), option.flag)
        else:
            self._set(field, text, option.flag)

    def _special(self, option: Option) -> None:
        flag, values = option
        value = values[0] if values else ""
        if flag in NEED_VALUE and not value:
            self.notes.append(f"{flag}: its value is missing")
        elif flag in {"--flash-attn", "-fa"}:
            self._set("flash_attn", value or "on", flag)
        elif flag in {"--load-mode", "-lm"}:
            self._set("load_mode", value, flag)
        elif flag in {"--mmap", "--no-mmap", "--mlock", "--direct-io", "-dio"}:
            self._loading.add("--direct-io" if flag == "-dio" else flag)
        elif flag in {"--embeddings", "--embedding"}:
            self.settings["embeddings"] = "on"
        elif flag in {"--lora", "--lora-scaled"}:
            self._lora(flag, values)
        elif flag in {"--mmproj", "-mm"}:
            self.settings["mmproj"] = value
        elif flag in {"--no-mmproj", "--no-mmproj-auto", "--mmproj-auto"}:
            self.settings["mmproj_auto"] = flag == "--mmproj-auto"
        elif flag in {"--spec-type", "--spec-default"}:
            self.settings["spec_type"] = value.split(",") if flag == "--spec-type" else ["default"]
        else:
            self._further(option)

    def _lora(self, flag: str, values: tuple[str, ...]) -> None:
        for text in values[0].split(",") if values else ():
            path, _, scale = text.rpartition(":") if flag == "--lora-scaled" else (text, "", "1")
            try:
                weight = float(scale or 1)
            except ValueError:
                self.notes.append(f"{flag} {text}: has no scale at its end (FILE:SCALE), so it is 1")
                path, weight = text, 1.0
            self._adapters.append({"path": path, "scale": weight})
            self.settings["lora"] = self._adapters

    def _further(self, option: Option) -> None:
        rule = rule_of(option.flag)
        if option.flag in QUIET:
            return
        if rule.level in {"never", "field"}:
            self.notes.append(f"{option.flag} is left out: {rule.text}")
        elif rule is NEWER and is_likely_secret(option.flag):
            self.notes.append(f"{option.flag} is left out: it may hold a secret")
        else:
            self._further_args += [option.flag, *option.values]
            self.settings["extra_args"] = self._further_args

    def _set(self, field: str, value: object, flag: str) -> None:
        """Set a field with the type that it has; note a value that it cannot have."""
        try:
            made = self._spellings.settings.model_validate({field: value})
        except ValidationError as error:
            self.notes.append(f"{flag}: {option_fault(error.errors()[0])}")
            return
        kept = made.model_dump(mode="json", include={field})[field]
        self.settings[field] = int(kept) if isinstance(kept, float) and kept.is_integer() else kept


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
