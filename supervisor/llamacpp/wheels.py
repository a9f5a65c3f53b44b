"""Programs from Python wheels, in folders of the store's own."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.errors import BuildToolMissing, FolderRefused
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.run_tool import run_tool
from supervisor.llamacpp.store import EngineStore
from supervisor.system.owned import written_later
from supervisor.system.removal import check_unmounted

PIP = (sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "pip")
"""The command of pip; without `-P`, Python would run a `pip.py` of whatever folder a user is in."""


_SIZE = re.compile(r"Progress (\d+) of (\d+)$")  # of `--progress-bar raw`
_BEGUN = re.compile(r"(?P<verb>Downloading|Processing|Installing collected packages:) (?P<what>\S.*)")


@dataclass(frozen=True)
class Wanted:
    """Packages, the folder of the store that they go into, and the sentence to begin with where they are not given."""

    packages: tuple[str, ...]
    folder: Path
    otherwise: str


async def install_wheels(store: EngineStore, wanted: Wanted, env: Mapping[str, str], log: Path, report: Report) -> None:
    """Install packages into a folder of the store, in place of what was there, and tell what pip is at.

    Raises BuildToolMissing, beginning with `wanted.otherwise`, where the package index does not give them.
    """
    scratch = store.new_scratch("tools")
    made = scratch / "made"
    argv = [*PIP, "install", "--progress-bar", "raw", "--target", str(made), *wanted.packages]
    heard = PipLines()
    result = await run_tool(argv, env=env, log=log, on_line=lambda line: heard.tell(line, report))
    if result.status != 0:
        shutil.rmtree(scratch)
        message = f"{wanted.otherwise}. The Python package index did not give {', '.join(wanted.packages)}"
        raise BuildToolMissing(message, log_lines=result.tail[-10:])
    await asyncio.to_thread(_replace, wanted.folder, made)


class PipLines:
    """Follows what pip prints: which file it downloads, and how much of it is there."""

    def __init__(self) -> None:
        self._file = ""

    def tell(self, line: str, report: Report) -> None:
        """Report what a line says; nothing for a line that says nothing new."""
        size, begun = _SIZE.match(line.strip()), _BEGUN.match(line.strip())
        if size is not None:
            report(Progress("download", min(int(size[1]) / max(int(size[2]), 1), 1.0), self._file))
        elif begun is not None:
            self._file = begun["what"].partition(" (from ")[0].rpartition("/")[2]
            report(Progress("install" if begun["verb"].startswith("Inst") else "download", None, self._file))


def _replace(folder: Path, made: Path) -> None:
    scratch = made.parent
    if folder.exists():
        if not written_later([folder]):
            raise FolderRefused(f"{folder} was there before the program, so it stays; move it, or remove it.")
        check_unmounted(folder)
        folder.rename(scratch / "old")
    made.rename(folder)
    shutil.rmtree(scratch)
