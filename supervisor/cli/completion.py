"""What can be typed next: for the completion of shells. The parsers know it; names of models come from whoever asks."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from supervisor.cli.registry import Registry

Names = Callable[[str], Iterable[str]]
"""Returns the names of models that a verb may be given."""

_SAFE = re.compile(r"[\w.:/@+=,%-]+")
_FILES = frozenset({"TARGET", "FILE", "PATH", "DIR", "DEVICES"})
_MODELS = frozenset({"TARGET", "MODEL"})
_BREAKS = ":="


@dataclass(frozen=True)
class Candidates:
    """Words that may stand there, and whether names of files may, too."""

    words: tuple[str, ...] = ()
    files: bool = False


def candidates(typed: Sequence[str], verbs: Registry, names: Names) -> Candidates:
    """Return what may stand in place of the last of the words typed behind the program's name.

    Words that a shell could read as anything but a word are left out, and names that a verb would take for an option.
    """
    *before, current = typed or ("",)
    found = _of_verbs(before, verbs) if before[:1] in ([], ["help"]) else _of_verb(before, current, verbs, names)
    words = {word for word in found.words if word.startswith(current) and _SAFE.fullmatch(word)}
    return Candidates(tuple(sorted(words)), found.files)


def words_of(line: str) -> list[str]:
    """Cut a command line up to the cursor into its words behind the program's name, the last of which is typed on."""
    try:
        words = shlex.split(line)
    except ValueError:  # an open quote
        words = line.split()
    return words[1:] if line[-1:] not in {" ", "\t"} else [*words[1:], ""]


def behind_breaks(word: str, current: str) -> str:
    """Return the part of a word that bash replaces: it takes what stands before `:` or `=` as a word of its own."""
    kept = max(current.rfind(mark) for mark in _BREAKS) + 1
    return word[kept:]


def _of_verbs(before: Sequence[str], verbs: Registry) -> Candidates:
    more = () if before else ("help", "--help", "--version")
    return Candidates((*verbs.records, *verbs.aliases, *more) if len(before) < 2 else ())


def _of_verb(before: Sequence[str], current: str, verbs: Registry, names: Names) -> Candidates:
    verb = verbs.find(before[0])
    if verb is None:
        return Candidates()
    parser = verbs.add_to(argparse.ArgumentParser().add_subparsers(), verb)
    rest = list(before[1:])
    while (inner := _inner(parser)) is not None:
        chosen = next((word for word in rest if word in inner), None)
        if chosen is None:
            return Candidates(tuple(inner))
        parser, rest = inner[chosen], rest[rest.index(chosen) + 1 :]
    return _of_parser(parser, rest, current, lambda: names(verb))


def _inner(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser] | None:
    """Return the verbs of a verb; None where it has none."""
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((action.choices for action in actions), None)


def _of_parser(
    parser: argparse.ArgumentParser, before: Sequence[str], current: str, names: Callable[[], Iterable[str]]
) -> Candidates:
    options = {name: action for action in parser._actions for name in action.option_strings}
    places = [action for action in parser._actions if not action.option_strings]
    taken, asking = 0, None
    for word in before:
        if asking is not None:
            asking = None
        elif word in options:
            asking = options[word] if options[word].nargs != 0 else None
        elif not word.startswith("-"):
            taken += 1
    name, equals, _ = current.partition("=")
    if asking is not None:
        return _of_action(asking, names)
    if equals and name in options:
        found = _of_action(options[name], names)
        return Candidates(tuple(f"{name}={word}" for word in found.words))
    if current.startswith("-"):
        return Candidates(tuple(name for name, action in options.items() if action.help != argparse.SUPPRESS))
    return _of_action(places[taken], names) if taken < len(places) else Candidates()


def _of_action(action: argparse.Action, names: Callable[[], Iterable[str]]) -> Candidates:
    if action.choices is not None:
        return Candidates(tuple(map(str, action.choices)))
    words = tuple(one for one in names() if not one.startswith("-")) if action.metavar in _MODELS else ()
    return Candidates(words, action.metavar in _FILES)
