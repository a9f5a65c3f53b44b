"""docs/cli.md, made from the verbs' records and parsers.

What stands before the table of verbs, and under a verb after `by hand`, is written by hand and kept.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from supervisor.cli.registry import VERBS, Registry, Verb, module_of
from tests.support.made import ROOT, Made

PAGE = ROOT / "docs" / "cli.md"
_TABLE = "## The verbs\n"
_SHARED = "## Options of several verbs\n"
_MADE, _BY_HAND = "<!-- made from supervisor/cli/verbs/{name}.py -->", "<!-- by hand -->"
_ANY = _MADE.format(name=r"(\w+)")
_KEPT = re.compile(rf"^{_ANY}\n.*?^{_BY_HAND}\n(.*?)(?=^###? )", re.MULTILINE | re.DOTALL)
_HEAD = "| option | |\n|---|---|\n"
_ME, _OWN = "supervisor", ""

Groups: TypeAlias = Mapping[str, tuple[str, ...]]
"""Rows of options by the title of their group."""

Pairs: TypeAlias = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Part:
    """A verb, or a verb of a verb: its parser, and its rows of options by the title of their group."""

    name: str
    parser: argparse.ArgumentParser
    groups: Groups


def page(verbs: Registry, text: str) -> str:
    """Return the page as it has to be, with what is written by hand in `text`."""
    by_hand, nothing = dict(_KEPT.findall(text)), "\n"
    parts = {name: parts_of(verbs, name) for name in verbs.records}
    shared = shared_groups(parts.values())
    made = [
        f"### {name}\n\n{_MADE.format(name=module_of(name))}\n{_section(verbs.records[name], parts[name], shared)}"
        f"{_BY_HAND}\n{by_hand.get(module_of(name)) or nothing}"
        for name in verbs.records
    ]
    head = text[: text.index(_TABLE)]
    return f"{head}{_TABLE}\n{_table(verbs, parts)}\n{''.join(made)}{_SHARED}{''.join(_chapters(shared))}"


def shared_groups(parts: Iterable[list[Part]]) -> dict[str, tuple[str, ...]]:
    """The groups that several verbs have, row for row."""
    by_verb = ({group for one in every for group in one.groups.items()} for every in parts)
    seen = Counter(group for groups in by_verb for group in sorted(groups))
    return {title: rows for (title, rows), count in seen.items() if count > 1 and title != _OWN}


def parts_of(verbs: Registry, name: str) -> list[Part]:
    """The verb's parser, or those of its own verbs."""
    parser = verbs.add_to(argparse.ArgumentParser(prog=_ME).add_subparsers(), name)
    return [Part(word, one, groups_of(one)) for word, one in _innermost(name, parser)]


def _innermost(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
    if inner is None:
        yield name, parser
    else:
        for word, one in inner.choices.items():
            yield from _innermost(f"{name} {word}", one)


def groups_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, ...]]:
    """Rows by group; what belongs to no group of its own is under _OWN."""
    found: dict[str, tuple[str, ...]] = {}
    for group in parser._action_groups:
        title = _OWN if group in {parser._positionals, parser._optionals} else group.title or _OWN
        left_out = {"--help", "--json"} if title == _OWN else set()  # --json without a group: of a verb's own verb
        rows = tuple(_row(one) for one in group._group_actions if left_out.isdisjoint(one.option_strings))
        if rows:
            found[title] = (*found.get(title, ()), *rows)
    return found


def _row(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else "|".join(action.choices or ())
    names = [f"`{name}`" for name in action.option_strings] or [f"`{value}`"]
    if action.option_strings and action.nargs != 0 and value:
        names[-1] = f"`{action.option_strings[-1]} {value}`"
    told = " ".join((action.help or "").split()) % vars(action)
    return "| " + " | ".join(text.replace("|", "\\|") for text in (", ".join(names), told)) + " |\n"


def usage(parser: argparse.ArgumentParser) -> str:
    """The command line in short, as `load TARGET`."""
    words = [str(action.metavar) for action in parser._actions if not action.option_strings and action.metavar]
    optional = {str(action.metavar) for action in parser._actions if action.nargs in {"?", "*"}}
    shown = (f"[{word}]" if word in optional else word for word in words)
    return " ".join([parser.prog.removeprefix(f"{_ME} "), *shown])


def _table(verbs: Registry, parts: Mapping[str, list[Part]]) -> str:
    rows = []
    for name, verb in verbs.records.items():
        shown = usage(parts[name][0].parser) if len(parts[name]) == 1 else f"{name} …"
        also = f" (also: {', '.join(f'`{alias}`' for alias in verb.aliases)})" if verb.aliases else ""
        rows.append(f"| [`{shown}`](#{name}) | {verb.summary}{also} |\n")
    return f"| verb | does |\n|---|---|\n{''.join(rows)}"


def _section(verb: Verb, parts: list[Part], shared: Groups) -> str:
    width = max(len(command) for command, _ in verb.examples)
    examples = "".join(f"{_ME} {command:<{width}}  # {does}\n" for command, does in verb.examples)
    exits = "".join(f"\nExit code {code}: {meaning}.\n" for code, meaning in verb.exits)
    inner = parts[0].name.count(" ") > 0
    told = [f"{_paragraph(verb.description)}\n\n"] if not inner else []
    told += [f"{_options(part, shared, inner)}\n" for part in parts]
    return f"\n```sh\n{examples}```\n\n{''.join(told)[:-1]}{exits}\n"


def _options(part: Part, shared: Groups, inner: bool) -> str:
    own = [row for title, rows in part.groups.items() if shared.get(title) != rows for row in rows]
    also = [f"[{title}](#{_anchor(title)})" for title, rows in part.groups.items() if shared.get(title) == rows]
    text = f"`{_ME} {usage(part.parser)} [options]`"
    text += f": {_paragraph(part.parser.description or '')}\n" if inner else "\n"
    text += f"\n{_HEAD}{''.join(own)}" if own else ""
    return text + (f"\nAlso: {', '.join(also)}.\n" if also else "")


def _chapters(shared: Groups) -> Iterator[str]:
    for title, rows in shared.items():
        yield f"\n### {title[:1].upper()}{title[1:]}\n\n{_HEAD}{''.join(rows)}"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def made() -> str:
    """The page from its table of verbs on, with what is written by hand there now."""
    made = page(VERBS, PAGE.read_text(encoding="utf-8"))
    return made[made.index(_TABLE) :]


VERBS_AND_OPTIONS = Made(PAGE, re.compile(rf"^{_TABLE}(?:.*\n)*", re.MULTILINE), made)
