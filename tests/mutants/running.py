"""Runs a program within limits, and ends it with all that it started."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

_MEMORY: Final = 8 << 30
_NICE: Final = 4
_GOODBYE: Final = 10.0  # seconds in which tests may end what they started


class Stopped(Exception):
    """Nothing is run any more."""


class Runner:
    """Runs programs until it is stopped, from whichever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float, output: Path
    ) -> tuple[int, str]:
        """The exit status, and the end of what was said.

        Args:
            folder: where it runs. output: the file for what it says.
            seconds: of CPU that it may take; ten times as many may pass.

        Raises:
            Stopped: `stop` was called.
            subprocess.TimeoutExpired: it did not end.
        """
        process = self._started(argv, folder, env, seconds, output)
        try:
            process.wait(seconds * 10)
        finally:
            _end(process, signal.SIGKILL)
            with self._lock:
                self._live.discard(process)
                if self._stopped:
                    raise Stopped
        return process.returncode, output.read_text("utf-8", "replace")[-4000:]

    def _started(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float, output: Path
    ) -> subprocess.Popen[bytes]:
        def limit() -> None:
            """A change may make a loop endless: it stays behind others, and within some time and memory."""
            os.nice(_NICE)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))

        with self._lock, output.open("wb") as said:
            if self._stopped:
                raise Stopped
            process = subprocess.Popen(
                argv,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=limit,
            )
            self._live.add(process)
            return process

    def stop(self) -> None:
        """End what runs, and run nothing more. Tests are interrupted first, so that they end what they started."""
        with self._lock:
            self._stopped = True
            live = list(self._live)
        for process in live:
            _end(process, signal.SIGINT)


def _end(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    """End a process, if it lives, and those it has started."""
    try:
        tree = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    except psutil.NoSuchProcess:
        tree = []
    if process.poll() is None:
        process.send_signal(first)
        try:
            process.wait(_GOODBYE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for one in tree:
        if one.is_running():  # the same one, not another with its number
            one.kill()
    psutil.wait_procs(tree, _GOODBYE)
