"""docs/cli.md names every verb, every option and every exit code."""

from __future__ import annotations

import argparse
import importlib

import pytest

from supervisor.cli import exits
from supervisor.cli.main import VERBS
from tests.cli.conftest import ROOT

TEXT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "engine"])
def test_every_option_is_documented(verb: str) -> None:
    subparsers = argparse.ArgumentParser().add_subparsers()
    importlib.import_module(f"supervisor.cli.{verb}").add_parser(subparsers)
    assert f"`{verb}" in TEXT
    options = subparsers.choices[verb]._option_string_actions
    missing = [name for name in options if name.startswith("--") and name != "--help" and name not in TEXT]
    assert not missing


def test_every_exit_code_is_documented() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert all(f"\n| {code} | " in TEXT for code in codes)
