"""AMD's tools where they are installed: real programs that say what was captured."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from supervisor.core.devices.amd import parse_amd_smi, parse_rocm_smi
from supervisor.probe import drivers
from supervisor.probe.places import Surroundings
from supervisor.probe.tool import ProbeFailed
from tests.core.devices.support import DATA

ASKED = {
    "amd_smi": "static --asic --bus --vram --json",
    "rocm_smi": "--showproductname --showbus --showuniqueid --showmeminfo vram --json",
}


def around(folder: Path, **tools: str) -> Surroundings:
    """Surroundings that have these tools, which say these texts where they are asked for them."""
    for name, text in tools.items():
        said = folder / f"{name}.text"
        said.write_text(text)
        tool = folder / name.replace("_", "-")
        tool.write_text(f'#!/bin/sh\n[ "$*" = "{ASKED[name]}" ] && exec cat {shlex.quote(str(said))}\n')
        tool.chmod(0o755)
    path = f"{folder}:/usr/bin:/bin"
    return Surroundings({"PATH": path}, folder / "none", folder / "none", folder / "none", "linux", 20, ("false",))


AMD, ROCM = ((DATA / name).read_text("utf-8") for name in ("amd-smi.json", "rocm-smi.json"))


def test_the_newer_tool_is_asked_and_the_older_where_it_is_all_there_is(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    (tmp_path / "older").mkdir()
    assert drivers.amd_tools(around(tmp_path)) == ()
    assert drivers.amd_tools(around(tmp_path / "both", amd_smi=AMD, rocm_smi=ROCM)) == parse_amd_smi(AMD)
    assert drivers.amd_tools(around(tmp_path / "older", rocm_smi=ROCM)) == parse_rocm_smi(ROCM) != ()


def test_an_answer_that_makes_no_sense_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="cannot be understood"):
        drivers.amd_tools(around(tmp_path, rocm_smi="{"))
