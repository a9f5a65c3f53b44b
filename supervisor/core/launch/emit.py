"""Turn options into arguments, by what the binary knows.

An option that was asked for is passed on or refused by name, never dropped.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping

from supervisor.core.engine_output.capabilities import Flags
from supervisor.core.launch.facts import ModelFacts, projector_of, serves_embeddings
from supervisor.core.memory.patterns import check_override
from supervisor.core.options import LaunchOptions, LoraAdapter, Option, Way, options_of
from supervisor.core.options.kinds import Many, Override
from supervisor.errors import InvalidRequest, OptionNotSupported

_ON = {row.name: row.on for row in options_of(LaunchOptions)}
# Builds before --load-mode: what each mode was called there
_OLD_LOAD_MODES: Mapping[str, tuple[str, ...]] = {
    "auto": (),
    "mmap": (),
    "none": ("--no-mmap",),
    "mlock": ("--no-mmap", "--mlock"),
    "mmap+mlock": ("--mlock",),
    "dio": ("--direct-io",),
}


def typed_arguments(options: LaunchOptions, facts: ModelFacts, flags: Flags | None) -> list[str]:
    """Return the arguments for all fields but `extra_args`, `jinja` first, because templates are read by it.

    Args:
        options: what was asked for.
        facts: of the model.
        flags: what the binary knows; None: today's spellings are taken on trust.

    Raises:
        OptionNotSupported: the binary lacks an option that was asked for.
        InvalidRequest: a value cannot be put into an argument.
    """
    found = [*_switches(options, flags), *_valued(options, flags), *_special(options, facts, flags)]
    if any("\0" in argument for argument in found):
        raise InvalidRequest("an option's value cannot hold a NUL character", param="options")
    return found


def unknown_option(flag: str, flags: Flags, param: str) -> OptionNotSupported:
    """Return the error for an option that the binary lacks, with the nearest one that it has."""
    near = difflib.get_close_matches(flag, sorted(flags), n=1)
    hint = f"; did you mean {near[0]}?" if near else "; see `llama-server --help` or use a newer engine"
    return OptionNotSupported(f"this llama-server has no option {flag}{hint}", param=param)


def _spelling(spellings: tuple[str, ...], field: str, flags: Flags | None) -> str:
    """Return the first spelling that the binary has. Raise OptionNotSupported where it has none."""
    if flags is None:
        return spellings[0]
    known = next((flag for flag in spellings if flag in flags), None)
    if known is None:
        raise unknown_option(spellings[0], flags, field)
    return known


def _switches(options: LaunchOptions, flags: Flags | None) -> Iterator[str]:
    for row in sorted(_rows(options, Way.SWITCH), key=lambda row: row.name != "jinja"):
        value = getattr(options, row.name)
        if value is True:
            yield from _switched(row, row.on, row.off, flags)
        elif value is False and row.off and row.optional:  # else False is the default and says nothing
            yield from _switched(row, row.off, row.on, flags)


def _rows(options: LaunchOptions, way: Way) -> list[Option]:
    return [row for row in options_of(type(options)) if row.way is way]


def _switched(row: Option, wanted: tuple[str, ...], opposite: tuple[str, ...], flags: Flags | None) -> Iterator[str]:
    """Yield the wanted side of a switch.

    Nothing where the build knows only the other side, since the wanted one is its default.
    """
    if flags is not None and not any(flag in flags for flag in wanted) and any(flag in flags for flag in opposite):
        return
    yield _spelling(wanted, row.name, flags)


def _valued(options: LaunchOptions, flags: Flags | None) -> Iterator[str]:
    for row in _rows(options, Way.VALUE):
        value = getattr(options, row.name)
        if value is None or (value in ((), {}) and not row.optional):  # of an optional list, empty is a wish: `none`
            continue
        if isinstance(row.kind, Many) and isinstance(row.kind.item, Override):
            _check_overrides(value, row.name)
        yield from (_spelling(row.on, row.name, flags), _text(value))


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, tuple):
        return ",".join(_text(item) for item in value) or "none"
    return format(value, "g") if isinstance(value, float) and value.is_integer() else str(value)


def _check_overrides(values: Iterable[str], field: str) -> None:
    for value in values:
        try:
            check_override(value)
        except ValueError as error:
            raise InvalidRequest(f"{value!r}: {error}", param=field) from None


def _special(options: LaunchOptions, facts: ModelFacts, flags: Flags | None) -> Iterator[str]:
    yield from _flash_attention(options, flags)
    yield from _load_mode(options, flags)
    yield from _embeddings(options, facts, flags)
    yield from _lora(options.lora, flags)
    yield from _projector(options, facts, flags)
    yield from _speculative(options.spec_type, flags)


def _flash_attention(options: LaunchOptions, flags: Flags | None) -> Iterator[str]:
    """Yield `on`, `off` or `auto`; for older builds a switch that is off by default."""
    if options.flash_attn is None:
        return
    spelling = _spelling(_ON["flash_attn"], "flash_attn", flags)
    if flags is None or flags[spelling]:
        yield from (spelling, options.flash_attn)
    elif options.flash_attn == "on":
        yield spelling


def _load_mode(options: LaunchOptions, flags: Flags | None) -> Iterator[str]:
    mode = options.load_mode
    if mode is None:
        return
    if flags is None or "--load-mode" in flags:
        yield from ("--load-mode", mode)
        return
    for flag in _OLD_LOAD_MODES[mode]:
        yield _spelling((flag,), "load_mode", flags)


def _embeddings(options: LaunchOptions, facts: ModelFacts, flags: Flags | None) -> Iterator[str]:
    if options.reranking or not serves_embeddings(options, facts):
        return
    yield _spelling(_ON["embeddings"], "embeddings", flags)
    if not facts.pooling and options.pooling is None:
        yield from (_spelling(_ON["pooling"], "pooling", flags), "mean")


def _lora(adapters: tuple[LoraAdapter, ...], flags: Flags | None) -> Iterator[str]:
    """Yield one argument for all adapters, as b11434 wants it; `FNAME:SCALE` where a scale is given.

    No colon may confuse it.
    """
    if not adapters:
        return
    scaled = any(adapter.scale != 1 for adapter in adapters)
    if scaled and any(":" in adapter.path for adapter in adapters):
        raise InvalidRequest("llama-server takes a scale only for adapters without a colon in their path", param="lora")
    texts = [f"{adapter.path}:{_text(adapter.scale)}" if scaled else adapter.path for adapter in adapters]
    yield _spelling(("--lora-scaled" if scaled else "--lora",), "lora", flags)
    yield ",".join(_csv(text) for text in texts)


def _csv(text: str) -> str:
    """Return a field of comma-separated values, quoted as llama-server reads it, with doubled quotes inside."""
    return '"' + text.replace('"', '""') + '"' if "," in text or text.startswith('"') else text


def _projector(options: LaunchOptions, facts: ModelFacts, flags: Flags | None) -> Iterator[str]:
    path = projector_of(options, facts)
    if path is not None:
        yield from (_spelling(_ON["mmproj"], "mmproj", flags), path)


def _speculative(kinds: tuple[str, ...], flags: Flags | None) -> Iterator[str]:
    named = [kind for kind in kinds if kind not in {"default", "none"}]
    if "default" in kinds:
        yield _spelling(("--spec-default",), "spec_type", flags)
    if named:
        yield from (_spelling(("--spec-type",), "spec_type", flags), ",".join(named))
