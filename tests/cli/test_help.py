"""`--help`: every verb and every option says what it is for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from supervisor.cli.registry import VERBS


def described(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str | None]]:
    """What `--help` names, and what it says of it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((f"{parser.prog} {one.dest}", one.help) for one in action._choices_actions)
            for below in action.choices.values():
                yield from described(below)
        elif action.help != argparse.SUPPRESS:
            yield f"{parser.prog} {'/'.join(action.option_strings) or action.dest}", action.help


@pytest.mark.parametrize("verb", VERBS.records)
def test_everything_is_described(verb: str) -> None:
    parser = argparse.ArgumentParser("supervisor")
    VERBS.add_to(parser.add_subparsers(), verb)
    found = dict(described(parser))
    assert f"supervisor {verb}" in found
    assert [name for name, text in found.items() if not text] == []
