"""docs/launch.md has every option, once, with who may give it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from supervisor.core.launch import MACHINE_FIELDS, LaunchOptions

PAGE = (Path(__file__).parents[3] / "docs" / "launch.md").read_text(encoding="utf-8")


def test_every_option_is_in_the_table() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]* \| (anybody|configuration)", PAGE, re.MULTILINE)
    shown = [(name, who) for names, who in rows for name in re.findall(r"`(\w+)`", names)]
    expected = {
        (field.name, "configuration" if field.name in MACHINE_FIELDS else "anybody")
        for field in dataclasses.fields(LaunchOptions)
    }
    assert set(shown) == expected
    assert len(shown) == len(expected)
