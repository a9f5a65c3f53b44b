"""Convert a preset file of llama-server's router (`--models-preset FILE.ini`) into our settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from supervisor.config.imports.arguments import NEED_VALUE, SPELLINGS, Spellings, read_arguments
from supervisor.config.imports.carried import Carried
from supervisor.config.sources import kind_of
from supervisor.core.launch.rules import RULES

_SECTION = re.compile(r"\[(?P<name>.*)\]")
_OWN = {"stop-timeout", "dedup-cache-models", "tags"}
_TRUE, _FALSE = {"true", "on", "yes", "1", "enabled"}, {"false", "off", "no", "0", "disabled"}
_WITH_VALUE = NEED_VALUE | {"--flash-attn", "-fa"}


def from_preset(text: str, spellings: Spellings = SPELLINGS) -> Carried:
    """Return the converted configuration: sections become models, `[*]` becomes `defaults`."""
    found = Carried()
    for name, pairs in _sections(text, found).items():
        settings = found.section("defaults") if name == "*" else found.section("models", name)
        _take(name, pairs, settings, found, spellings)
        if name == "*":
            for key in {"file", "source", "aliases"} & settings.keys():
                del settings[key]
                found.note("[*]", f"one {key} for all models makes no sense")
        elif "file" not in settings and "source" not in settings:
            _name_source(found, name)
    return found


def _take(
    name: str, pairs: Mapping[str, str], settings: dict[str, object], found: Carried, spellings: Spellings
) -> None:
    """Carry one section's keys over."""
    arguments: list[str] = []
    for key, value in pairs.items():
        if key == "load-on-startup":
            settings["preload"] = value.lower() in _TRUE
        elif key in _OWN:
            found.note(f"[{name}]", f"{key} = {value} has no counterpart for a single model")
        else:
            arguments += _argument(key, value, spellings)
    read = read_arguments(arguments, spellings)
    settings.update(read.settings)
    for note in read.notes:
        found.note(f"[{name}]", note)


def _name_source(found: Carried, name: str) -> None:
    """Set the source of a section without a model: the cached one of its name."""
    if kind_of(name) == "repo":
        found.section("models", name)["source"] = name
        return
    found.note(f"[{name}]", "names no model; it is left out (set `models_dir` for those of a folder)")
    del found.models[name]


def _sections(text: str, found: Carried) -> dict[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = {}
    current = "default"
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in ";#":
            continue
        header = _SECTION.fullmatch(line)
        key, equals, value = line.partition("=")
        if header is not None:
            current = header["name"].strip()
            sections.setdefault(current, {})
        elif not equals:
            found.note(f"line {number}", "is neither a section nor KEY = VALUE")
        elif key.strip() != "version":
            sections.setdefault(current, {})[key.strip()] = value.strip()
    return sections


def _argument(key: str, value: str, spellings: Spellings) -> Iterator[str]:
    """Yield the setting as it would stand on the command line."""
    flag = _flag(key)
    row = spellings.switchable.get(flag)
    if flag in spellings.valued or flag in _WITH_VALUE:
        yield from (flag, value)
    elif row is not None and value.lower() in _TRUE | _FALSE:
        on = (flag in row.on) == (value.lower() in _TRUE)
        words = row.on if on else row.off
        negative = flag.replace("--", "--no-", 1)
        yield from [name for name in (flag, negative, *words) if name in words][:1]
    elif value.lower() in _TRUE:
        yield flag
    elif value.lower() in _FALSE:
        negative = flag.replace("--", "--no-", 1)
        yield from (negative,) if negative in RULES else ()
    else:
        yield from (flag, value)


def _flag(key: str) -> str:
    """Return the flag of a key: `ctx-size`, `c` and `LLAMA_ARG_CTX_SIZE` are the same."""
    if key.startswith("LLAMA_ARG_"):
        key = key.removeprefix("LLAMA_ARG_").lower().replace("_", "-")
    key = key.lstrip("-")
    return f"-{key}" if f"--{key}" not in RULES and f"-{key}" in RULES else f"--{key}"
