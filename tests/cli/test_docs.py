"""docs/cli.md names every exit code; the verbs and options in it are made (test_registry.py)."""

from __future__ import annotations

from supervisor.cli import exits
from tests.cli.conftest import ROOT

TEXT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_exit_code_is_documented() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert all(f"\n| {code} | " in TEXT for code in codes)
