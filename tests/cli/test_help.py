"""`--help`: every verb and every option says what it is for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

import pytest

from supervisor.cli.main import VERBS


def described(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str | None]]:
    """What `--help` names, and what it says of it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((f"{parser.prog} {one.dest}", one.help) for one in action._choices_actions)
            for below in action.choices.values():
                yield from described(below)
        elif action.help != argparse.SUPPRESS:
            yield f"{parser.prog} {'/'.join(action.option_strings) or action.dest}", action.help


@pytest.mark.parametrize("verb", VERBS)
def test_everything_is_described(verb: str) -> None:
    parser = argparse.ArgumentParser("supervisor")
    importlib.import_module(f"supervisor.cli.{verb}").add_parser(parser.add_subparsers())
    found = dict(described(parser))
    assert f"supervisor {verb}" in found
    assert [name for name, text in found.items() if not text] == []
