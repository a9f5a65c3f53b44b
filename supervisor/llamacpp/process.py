"""Run a tool to its end, with its output logged line by line; when we are cancelled, it ends with us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TERM_SECONDS = 2.0
_LINE_LIMIT = 1 << 20
_TAIL_LINES = 20


@dataclass(frozen=True)
class ToolResult:
    """How a tool ended, and the last lines it printed."""

    status: int
    tail: tuple[str, ...]


async def run_tool(
    argv: Sequence[str], *, env: Mapping[str, str], log: Path, on_line: Callable[[str], None] | None = None
) -> ToolResult:
    """Run `argv` in a session of its own, appending what it prints to `log`.

    Cancelling ends the tool and everything it started before the cancellation goes on.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with log.open("ab") as sink:
        sink.write(f"$ {' '.join(argv)}\n".encode())
        process = await asyncio.create_subprocess_exec(
            *argv, env=dict(env), limit=_LINE_LIMIT, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None  # PIPE was asked for
        try:
            async for raw in process.stdout:
                sink.write(raw)
                line = raw.decode(errors="replace").rstrip()
                tail.append(line)
                if on_line:
                    on_line(line)
            return ToolResult(await process.wait(), tuple(tail))
        finally:
            if process.returncode is None:
                await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    """TERM to the whole group, KILL to what is left of it, and reap."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _TERM_SECONDS)
    if sys.platform != "win32":
        _signal_group(process, signal.SIGKILL)
    else:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, number)
