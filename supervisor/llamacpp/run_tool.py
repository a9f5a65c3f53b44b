"""Run a tool to its end, with its output logged line by line; when we are cancelled, it ends with us."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.environment import for_builds
from supervisor.system.processes import signal_session

_TERM_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_LONGEST_LINE = 1 << 16  # bytes; a longer one is told in pieces
_TAIL_LINES = 80
_LONGEST_LOG = 64 << 20  # bytes; what a tool prints after that is read and left out


@dataclass(frozen=True)
class ToolResult:
    """The end of a tool, and the last lines it printed."""

    status: int
    tail: tuple[str, ...]


async def run_tool(
    argv: Sequence[str], *, env: Mapping[str, str], log: Path, on_line: Callable[[str], None] | None = None
) -> ToolResult:
    """Run `argv` in a session of its own, without secrets of ours, appending what it prints to `log`.

    Cancelling ends the tool and everything it started before the cancellation goes on.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with log.open("ab") as sink:
        sink.write(f"$ {' '.join(argv)}\n".encode())
        process = await asyncio.create_subprocess_exec(
            *argv, env=for_builds(env), start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None  # PIPE was asked for
        try:
            async for raw in _lines(process.stdout):
                if sink.tell() < _LONGEST_LOG:
                    sink.write(raw)
                line = raw.decode(errors="replace").rstrip()
                tail.append(line)
                if on_line:
                    on_line(line)
            return ToolResult(await process.wait(), tuple(tail))
        finally:
            if process.returncode is None:
                await asyncio.shield(_end(process))


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines with their ends; of one that is too long, pieces."""
    rest = b""
    while data := await stream.read(_LONGEST_LINE):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) >= _LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest


async def _end(process: asyncio.subprocess.Process) -> None:
    """Send TERM to the whole session, KILL to what is left of it, and reap.

    The session, not the process group: ninja gives each compiler a group of its own.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TERM_SECONDS):
                while signal_session(process.pid, number):  # noqa: ASYNC110 - a session tells nobody that it is empty
                    await asyncio.sleep(_LOOK_SECONDS)
    await process.wait()
