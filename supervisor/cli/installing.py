"""Installing an engine from the command line: for the verb `engine`, and for those who want to load something."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, TypeVar

from supervisor.cli.client import Json
from supervisor.cli.daemon import Daemon, explicit_url
from supervisor.cli.progress import Report, TimeLeft
from supervisor.cli.prose import is_terminal
from supervisor.errors import EngineNotFound
from supervisor.system.paths import places

if TYPE_CHECKING:
    from supervisor.llamacpp.progress import Progress

_T = TypeVar("_T")


def engine_of(args: argparse.Namespace, daemon: Daemon, report: Report) -> Json:
    """Return the daemon's engine; install one where it has none.

    Raises EngineNotFound, EngineUnusable, EngineInstallFailed.
    """
    engine = daemon.status.get("engine")
    if isinstance(engine, dict):
        return engine
    if explicit_url(args):
        raise EngineNotFound(f"The daemon at {daemon.client.url} has no engine; run `engine install` on its machine.")
    if args.engine:
        raise EngineNotFound(
            f"The running daemon has no engine that it can use, and ignores --engine {args.engine}; "
            "end it with `stop`, then run this again."
        )
    from supervisor.llamacpp.ensure import ensure_engine  # noqa: PLC0415 - only the first load needs it
    from supervisor.service.smoke import SmokeTest  # noqa: PLC0415 - as above

    where, env = places(os.environ), os.environ
    smoke_test = SmokeTest(where, env)
    run_until_signal(ensure_engine(where, env, None, smoke_test=smoke_test, progress=teller(report)))
    engine = daemon.client.get("/api/v1/status").get("engine")
    if not isinstance(engine, dict):
        raise EngineNotFound(
            "There is an engine, but the daemon uses only the one that its own --engine or `engine.path` names, and "
            "that one cannot be used. Correct the name, or `stop` the daemon and start it without it."
        )
    return engine


def teller(report: Report, left: TimeLeft | None = None) -> Callable[[Progress], None]:
    """Turn a step of an installation into a line for the screen: moving on a terminal, every 10 % elsewhere.

    With the time that is left, as far as the steps so far foretell it.
    """
    moving, foretold = is_terminal(sys.stderr), left or TimeLeft()
    tenth = -1.0

    def tell(step: Progress) -> None:
        nonlocal tenth
        soon = foretold.text(step.fraction)
        if moving or step.fraction is None:
            stage = f"{step.stage}, {soon}" if soon else step.stage
            report(f"{stage}: {step.detail}" if step.detail else stage, step.fraction)
            return
        if (reached := int(step.fraction * 10) * 10) != tenth:  # a guess alone is no news
            tenth = reached
            report(f"{step.stage} {reached} %{f', {soon}' if soon else ''}", step.fraction)

    return tell


def run_until_signal(work: Coroutine[object, None, _T]) -> _T:
    """Run `work`. Ctrl-C, SIGTERM and a closed terminal cancel it; what it had begun is undone first.

    Raises KeyboardInterrupt when it was cancelled.
    """

    async def guarded() -> _T:
        task = asyncio.current_task()
        if sys.platform != "win32" and task is not None:
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
