"""Programs from Python wheels, in folders of the store's own."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from supervisor.errors import BuildToolMissing
from supervisor.llamacpp.run_tool import run_tool
from supervisor.llamacpp.store import EngineStore

PIP = (sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "pip")
"""The command of pip; without `-P`, Python would run a `pip.py` of whatever folder a user is in."""


async def install_wheels(
    store: EngineStore, packages: Sequence[str], folder: Path, env: Mapping[str, str], log: Path, otherwise: str
) -> None:
    """Install packages into a folder of the store, in place of what was there.

    Raises BuildToolMissing, beginning with `otherwise`, where the package index does not give them.
    """
    scratch = store.new_scratch("tools")
    made = scratch / "made"
    argv = [*PIP, "install", "--quiet", "--target", str(made), *packages]
    result = await run_tool(argv, env=env, log=log)
    if result.status != 0:
        shutil.rmtree(scratch)
        message = f"{otherwise}. The Python package index did not give {', '.join(packages)}"
        raise BuildToolMissing(message, log_lines=result.tail[-10:])
    await asyncio.to_thread(_replace, folder, made)


def _replace(folder: Path, made: Path) -> None:
    scratch = made.parent
    if folder.exists():
        folder.rename(scratch / "old")
    made.rename(folder)
    shutil.rmtree(scratch)
