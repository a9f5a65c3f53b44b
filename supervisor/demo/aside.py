"""The built-in model's file for those whose loop must not wait: made by a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from supervisor.core.environment import for_python
from supervisor.demo.builtin import demo_file_name
from supervisor.errors import ModelLoadFailed


async def make_demo_model(cache: Path) -> Path:
    """The built-in model's file in the cache folder, made on first use; raises ModelLoadFailed."""
    ready = cache / demo_file_name()
    if ready.is_file():
        return ready
    maker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "supervisor.demo", str(cache)),
        env=for_python(os.environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await maker.communicate()
    finally:
        if maker.returncode is None:
            maker.kill()
            await maker.wait()
    if maker.returncode != 0:
        lines = tuple(errors.decode("utf-8", "replace").splitlines()[-5:])
        reason = lines[-1].partition(": ")[2] if lines else ""
        raise ModelLoadFailed(
            f"The built-in model could not be made in {cache}{f' ({reason})' if reason else ''}. "
            "Make that folder writable, or choose another with SUPERVISOR_HOME."
        )
    return ready
