"""What people read about launch options, made from their table.

The table in docs/launch.md, the options of the model in config.example.yaml. The flags in docs/cli.md
are made from the parsers (`cli_page`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from supervisor.core.options import LaunchOptions, Option, kinds, options_of
from supervisor.engines.command.options import CommandOptions
from tests.support.made import ROOT, Made

_PLAIN = 100_000  # an upper bound beyond which nobody asks for it
_COLUMNS = 120
_WIDTH = 22  # of `name: value` in the example, beyond which its comment follows right behind


def table(rows: Iterable[Option]) -> str:
    """A line for each option: its name, what its value is, who may give it, what it means."""
    lines = ["| option | value | who | meaning |", "|---|---|---|---|"]
    for row in rows:
        who = "anybody" if row.client else "configuration"
        meaning = re.sub(r"\bdocs/(\w+\.md)\b", r"[\1](\1)", row.help)
        lines.append(f"| `{row.name}` | {value(row.kind)} | {who} | {meaning} |")
    return "\n".join(lines) + "\n"


def value(kind: Any) -> str:
    """What a value is, in words."""
    return _VALUES[type(kind)](kind)


_VALUES: Mapping[type, Callable[[Any], str]] = {
    kinds.Truth: lambda _: "true, false",
    kinds.Choice: lambda kind: " ".join(f"`{word}`" for word in kind.words),
    kinds.Whole: lambda kind: kind.unit if kind.most > _PLAIN else f"{kind.unit}, {kind.least} to {kind.most:,}",
    kinds.Decimal: lambda kind: f"{kind.least} to {kind.most}" if kind.most <= 1 else "number",
    kinds.Text: lambda kind: kind.what,
    kinds.Override: lambda _: "`PATTERN=PLACE`",
    kinds.Adapter: lambda _: "`path`, `scale`",
    kinds.Many: lambda kind: f"list of {_plural(value(kind.item))}",
    kinds.Words: lambda _: "list of texts",
    kinds.Variables: lambda _: "texts by name",
    kinds.Sizes: lambda _: "MiB by name",
    kinds.Json: lambda _: "object",
}


def _plural(word: str) -> str:
    """`text` becomes `texts`, and `status, 100 to 599` `status values, 100 to 599`."""
    noun, comma, bounds = word.partition(",")
    if noun.startswith("`"):
        return word
    return f"{noun} values{comma}{bounds}" if noun.endswith("s") else f"{noun}s{comma}{bounds}"


def example(rows: Iterable[Option]) -> str:
    """Keys of a model with a value and a comment each."""
    return "\n".join(line for row in rows for line in _example(row)) + "\n"


def _example(row: Option) -> Iterator[str]:
    if row.begins:
        yield from ("", f"    # {row.begins}")
    told = f"{row.help} ({', '.join(row.kind.words)})" if isinstance(row.kind, kinds.Choice) else row.help
    key = f"    {f'{row.name}: {row.example or _written(row.default)}':{_WIDTH}} # "
    first, *more = textwrap.wrap(told, _COLUMNS - len(key), break_on_hyphens=False)
    yield key + first
    yield from (f"{'# ':>{_WIDTH + 7}}{line}" for line in more)


def _written(given: object) -> str:
    """A default as YAML; of lists and mappings there are empty ones only."""
    if given is None or isinstance(given, bool):
        return "null" if given is None else str(given).lower()
    return "[]" if given == () else str(given)


PARTS = (
    Made(
        ROOT / "docs" / "launch.md",
        re.compile(r"\| option \| value \| who \| meaning \|\n(?:\|.*\|\n)+"),
        lambda: table(options_of(LaunchOptions)),
    ),
    Made(
        ROOT / "docs" / "commands.md",
        re.compile(r"\| option \| value \| who \| meaning \|\n(?:\|.*\|\n)+"),
        lambda: table(options_of(CommandOptions)),
    ),
    Made(
        ROOT / "config.example.yaml",
        re.compile(r"(?<=docs/launch\.md has the table\.\n)(?:.*\n)+?(?=\n  my-command:|\n# )"),
        lambda: example(options_of(LaunchOptions)),
    ),
    Made(
        ROOT / "config.example.yaml",
        re.compile(r"(?<=docs/commands\.md has the table\.\n)(?:.*\n)+?(?=\n# )"),
        lambda: example(options_of(CommandOptions)),
    ),
)
