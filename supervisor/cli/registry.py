"""The registry of verbs: the modules of one folder, found by name and read without being imported.

Start-up time is what a person feels first, so only the module of the verb that was asked for is imported. `--help`,
aliases and suggestions need the records of all verbs: these are cut out of the sources. docs/cli.md is made from both.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, cast

from supervisor.cli.options import add_common, command_name

_P = TypeVar("_P", bound=argparse.ArgumentParser)

_RECORD = re.compile(r"^VERB = Verb\((?P<fields>.*?)^\)$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Verb:
    """The record of a verb.

    Args:
        summary: its line in `supervisor --help`; lower case, an imperative, no full stop.
        order: its place in that list; verbs of the same number stand by name.
        description: the text of `supervisor VERB --help`, one paragraph.
        examples: command lines without the program's name, each with what it does.
        aliases: words that people know from other programs for the same.
        exits: exit codes with what they mean for this verb, where that is more than docs/cli.md says of all.
    """

    summary: str
    order: int
    description: str
    examples: tuple[tuple[str, str], ...]
    aliases: tuple[str, ...] = ()
    exits: tuple[tuple[int, str], ...] = ()


class VerbModule(Protocol):
    """The contents of a verb's module; `supervisor/cli/verbs` describes them."""

    VERB: Verb

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what the verb understands beside the common options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""


class Registry:
    """The verbs in the folder of one package.

    Args:
        package: its name; every module in it is a verb. `_` between words of a module's name is `-` in the verb's.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    @functools.cached_property
    def records(self) -> dict[str, Verb]:
        """Every verb by its name, in the order of the help text; none is imported."""
        found = {_verb(file.stem): _record(file) for file in self._folder.glob("[a-z]*.py")}
        return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))

    @property
    def aliases(self) -> dict[str, str]:
        """The verbs' further names, each with the verb that it means."""
        return {alias: name for name, verb in self.records.items() for alias in verb.aliases}

    def find(self, word: str) -> str | None:
        """Return the verb that a word means, by its name or an alias; None where it means none."""
        module = module_of(word)
        is_name = module.isidentifier() and not module.startswith("__") and word in {module, _verb(module)}
        if is_name and (self._folder / f"{module}.py").is_file():
            return _verb(module)
        return self.aliases.get(word) if word else None

    def add_to(self, subparsers: argparse._SubParsersAction[_P], name: str) -> _P:
        """Import a verb and add its parser, which has `run` among its defaults."""
        module = cast("VerbModule", importlib.import_module(f"{self._package}.{module_of(name)}"))
        verb = module.VERB
        parser = subparsers.add_parser(
            name, help=verb.summary, description=verb.description, epilog=_epilog(verb), formatter_class=_Lines
        )
        module.add_options(parser)
        if hasattr(module, "run"):
            add_common(parser)
            parser.set_defaults(run=module.run)
        return parser

    @functools.cached_property
    def _folder(self) -> Path:
        return Path(importlib.import_module(self._package).__path__[0])


VERBS = Registry("supervisor.cli.verbs")
"""The verbs of the program."""


class _Lines(argparse.HelpFormatter):
    """Fills a description as usual, and leaves the lines of an epilog as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:\n") else super()._fill_text(text, width, indent)


def _verb(module: str) -> str:
    return module[:1] + module[1:].replace("_", "-")


def module_of(verb: str) -> str:
    """Return the name of a verb's module."""
    return verb.replace("-", "_")


def _epilog(verb: Verb) -> str:
    me = command_name(os.environ)
    width = max((len(command) for command, _ in verb.examples), default=0)
    lines = [f"  {me} {command:<{width}}  # {does}" for command, does in verb.examples]
    lines += [f"exit code {code}: {meaning}" for code, meaning in verb.exits]
    return "\n".join(["examples:", *lines]).replace("%", "%%")


def _record(file: Path) -> Verb:
    """Read the record of a verb from its source. Raises ValueError for one that is not written with literals."""
    found = _RECORD.search(file.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{file} has no `VERB = Verb(…)` that ends with a line `)`.")
    call = ast.parse(f"Verb({found['fields']})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(f"{file}: give every field of VERB by its name.")
    return Verb(**{field.arg or "": ast.literal_eval(field.value) for field in call.keywords})
