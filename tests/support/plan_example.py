"""The plan in README.md, made by the command that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.evidence.subjects import write_subject
from tests.support.daemon import NO_HUB
from tests.support.doc_blocks import fenced
from tests.support.made import ROOT, Made

PAGE = ROOT / "README.md"
MODEL, MACHINE = "gpt-oss-120b", "1x24gb"


def made() -> str:
    """The command and its output: a file of a header alone, a machine that is not here, an empty home."""
    with tempfile.TemporaryDirectory() as folder:
        write_subject(MODEL, Path(folder))
        (Path(folder) / "home").mkdir()
        command = ["plan", f"{MODEL}.gguf", "--devices", MACHINE]
        said = subprocess.run(
            [sys.executable, "-P", "-m", "supervisor", *command],
            cwd=folder,
            env=_environment(Path(folder) / "home"),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        shown = said.replace(f"{Path(folder).resolve()}/", "").replace(f"{folder}/", "").rstrip()
    return fenced("console", [f"$ bin/supervisor {' '.join(command)}", *shown.splitlines()])


def _environment(home: Path) -> dict[str, str]:
    """Nothing that this machine has: no settings, no engine, no colours."""
    return {
        **NO_HUB,
        "PATH": str(home),
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "SUPERVISOR_HOME": str(home),
        "COLUMNS": "100",
    }


PLAN = Made(PAGE, re.compile(r"(?<=<!-- made: plan -->\n)(?:.*\n)*?(?=<!-- end -->)"), made)
