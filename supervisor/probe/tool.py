"""Run a tool that may hang, and leave one that did alone for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from supervisor.core.devices import Problem
from supervisor.core.environment import for_python

T = TypeVar("T")

PAUSE_SECONDS = 300.0
_CHEAP_SECONDS = 0.5
_REAP_SECONDS = 1.0
_TOLD_CHARACTERS = 300


class ProbeFailed(Exception):
    """A probe has no answer; the message says why. It never leaves this package: it becomes a `Problem`."""


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """The outcome of a probe's last run; `problem` is None where it answered."""

    name: str
    seconds: float
    problem: Problem | None = None


def run_tool(argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> str:
    """Return the standard output of `argv`. From `env` it gets the variables that drivers and Python read.

    It has a session of its own, which is killed at the limit. Nobody waits for it after that: a process that hangs in
    a driver cannot be killed at all. Raises ProbeFailed for that, for a program that does not start, and for an exit
    status other than 0.
    """
    name = os.path.basename(argv[0])
    try:
        process = subprocess.Popen(
            argv, env=for_python(env), start_new_session=True, encoding="utf-8", errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise ProbeFailed(f"{name} does not start: {error.strerror or error}") from error
    try:
        out, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _abandon(process)
        raise ProbeFailed(f"{name} gave no answer within {limit_s:g} s") from None
    if process.returncode != 0:
        lines = [line.strip() for line in f"{out}\n{errors}".splitlines() if line.strip()]
        last = lines[-1][:_TOLD_CHARACTERS] if lines else "it printed nothing"
        raise ProbeFailed(f"{name} failed (exit status {process.returncode}): {last}")
    return out


class Patience:
    """A runner of probes that remembers how they went.

    One that failed, and took its time for it, is skipped until `pause_s` have passed; its problem stands meanwhile.

    Args:
        clock: seconds, forward only.
        pause_s: seconds.
    """

    def __init__(self, clock: Callable[[], float], pause_s: float = PAUSE_SECONDS) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._runs: dict[str, ProbeRun] = {}
        self._failed_at: dict[str, float] = {}

    def ask(self, name: str, work: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        """Return the answer of `work`; nothing where it fails now or failed a short while ago."""
        failed_at = self._failed_at.get(name)
        started = self._clock()
        if failed_at is not None and started - failed_at < self._pause_s:
            return ()
        try:
            answer = work()
        except ProbeFailed as failure:
            seconds = self._clock() - started
            if seconds >= _CHEAP_SECONDS:
                self._failed_at[name] = started + seconds
            self._runs[name] = ProbeRun(name, seconds, Problem(name, str(failure)))
            return ()
        self._failed_at.pop(name, None)
        self._runs[name] = ProbeRun(name, self._clock() - started)
        return answer

    def forgive(self) -> None:
        """Forget failures, so that all probes are asked again at the next occasion."""
        self._failed_at.clear()

    @property
    def runs(self) -> tuple[ProbeRun, ...]:
        """Last run of every probe so far."""
        return tuple(self._runs.values())


def _abandon(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_SECONDS)
        return
    threading.Thread(target=process.wait, daemon=True).start()  # reaped whenever the driver lets go of it
