"""Get mlx-lm into an environment of its own: every package in the version, and with the digest, that is pinned."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from supervisor.engines.mlx.environment import DONE, PINS, folder_of, interpreter_in
from supervisor.errors import EngineInstallFailed, FolderRefused
from supervisor.llamacpp.lock import engine_lock
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.run_tool import run_tool
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.wheels import PIP, PipLines
from supervisor.system.paths import Places
from supervisor.system.removal import check_unmounted, remove_tree

NAME: Final = "mlx"
_TRY: Final = "import mlx.core as mx, mlx_lm; mx.eval(mx.ones(2) + 1)"
_SYSTEMS: Final = ("darwin", "linux")


async def install_mlx(where: Places, env: Mapping[str, str], *, wait: bool, report: Report) -> Path:
    """Install the environment in the place of the one that is there; return its interpreter.

    Holds the lock under which engines are installed. Cancelling ends the tools, and leaves the old environment.

    Raises BuildLocked, EngineInstallFailed.
    """
    if sys.platform not in _SYSTEMS:
        raise EngineInstallFailed("mlx-lm runs on macOS and Linux.")
    store = EngineStore(where.engines)
    folder = folder_of(env)
    async with engine_lock(store.lock_file, wait=wait, report=report):
        scratch = store.new_scratch(NAME)
        try:
            await _make(scratch, store.logs / "mlx-install.log", env, report)
            await asyncio.to_thread(_replace, folder, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return interpreter_in(folder)


def remove_mlx(env: Mapping[str, str]) -> bool:
    """Remove the environment; return whether there was one. Blocks."""
    folder = folder_of(env)
    there = (folder / DONE).is_file()
    if there:
        check_unmounted(folder)
        (folder / DONE).unlink()
        remove_tree(folder)
    return there


def is_current(env: Mapping[str, str]) -> bool:
    """Return whether the environment is there and was made by the present pins. Blocks."""
    try:
        return (folder_of(env) / DONE).read_text("ascii").strip() == _digest()
    except (OSError, ValueError):
        return False


async def _make(folder: Path, log: Path, env: Mapping[str, str], report: Report) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    report(Progress("environment", None, "making it"))
    python = interpreter_in(folder)
    isolated = "-I" if sys.flags.isolated else "-P"
    await _run([sys.executable, isolated, "-m", "venv", "--without-pip", str(folder)], log, env)
    heard = PipLines()
    argv = [*PIP, "--python", str(python), "install", "--progress-bar", "raw", "--only-binary", ":all:"]
    argv += ["--no-compile", "--require-hashes", "-r", str(PINS)]
    result = await run_tool(argv, env=env, log=log, on_line=lambda line: heard.tell(line, report))
    if result.status:
        raise EngineInstallFailed(
            f"The Python package index did not give mlx-lm as it is pinned; {log} has what pip said.",
            log_lines=result.tail[-10:],
        )
    report(Progress("try", None, "computing with it"))
    await _run([str(python), "-I", "-c", _TRY], log, env)
    (folder / DONE).write_text(_digest() + "\n", "ascii")


async def _run(argv: list[str], log: Path, env: Mapping[str, str]) -> None:
    result = await run_tool(argv, env=env, log=log)
    if result.status:
        raise EngineInstallFailed(
            f"The environment for mlx-lm does not work; {log} has what was said.", log_lines=result.tail[-10:]
        )


def _replace(folder: Path, made: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not (folder / DONE).is_file():
        raise FolderRefused(f"{folder} is no environment of this program's, so it stays; move it, or remove it.")
    check_unmounted(folder)
    old = folder.with_name(f"{folder.name}.old-{time.time_ns()}")
    if folder.exists():
        folder.rename(old)
    made.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _digest() -> str:
    return hashlib.sha256(PINS.read_bytes()).hexdigest()
