"""Try the program as it is on disk now, and its configuration, in another process, before anything depends on them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from supervisor import __version__
from supervisor.core.takeover.carried import FORMAT
from supervisor.core.text.plaintext import one_line
from supervisor.errors import TakeoverFailed
from supervisor.system import processes

TRIAL: Final = "SUPERVISOR_TAKEOVER_TRIAL"
"""The variable that has a daemon say who it is, once it has read its configuration, and end."""

_QUIET_S: Final = 60.0  # without work: no CPU time, no I/O
_SECONDS: Final = 150.0  # with work: a busy machine lets it have little
_END_S: Final = 1.0
_MOST = 1 << 16  # bytes of its output
_SHOWN = 400  # characters of what it said


@dataclass(frozen=True)
class Next:
    """The program that would take over. format: of what it can take over; engines of another one are loaded again."""

    version: str
    format: int


def command() -> list[str]:
    """Return the command with which this process was started."""
    return [sys.executable, *sys.orig_argv[1:]]


def told() -> str:
    """Return what a daemon on trial prints."""
    return json.dumps({"version": __version__, "format": FORMAT})


async def try_next(env: Mapping[str, str]) -> Next:
    """Return which program would take over. Raises TakeoverFailed with its own words where it would not start."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command(),
            env={**env, TRIAL: "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MOST,
            start_new_session=True,
        )
    except OSError as error:
        raise TakeoverFailed(f"The program cannot be started any more: {error}. Install it again.") from error
    out, err = await _said(process)
    if process.returncode != 0:
        said = one_line(err.decode("utf-8", "replace").strip().rpartition("\n")[2])[:_SHOWN]
        raise TakeoverFailed(f"The program on disk does not start: {said} The daemon goes on as it is.")
    try:
        found = json.loads(out[-_MOST:].decode("utf-8", "replace").strip().rpartition("\n")[2])
        return Next(str(found["version"]), int(found["format"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TakeoverFailed("The program on disk cannot take over. Stop the daemon and start it.") from None


async def _said(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Return what it says until it ends. Raises TakeoverFailed where it does not, and ends it."""
    saying, before = asyncio.ensure_future(process.communicate()), processes.activity(process.pid)
    try:
        async with asyncio.timeout(_SECONDS):
            while not (await asyncio.wait({saying}, timeout=_QUIET_S))[0]:
                now = processes.activity(process.pid)
                if now == before:
                    raise TakeoverFailed(f"The program on disk did nothing for {_QUIET_S:g} s. The daemon goes on.")
                before = now
            return saying.result()
    except TimeoutError:
        raise TakeoverFailed(f"The program on disk did not start within {_SECONDS:g} s. The daemon goes on.") from None
    finally:
        if process.returncode is None:
            processes.signal_session(process.pid, signal.SIGKILL)
            await asyncio.wait({saying}, timeout=_END_S)
        saying.cancel()


def environment(env: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the next image: ours, and what was taken out of it when we started."""
    return {**os.environ, **env, **more}
