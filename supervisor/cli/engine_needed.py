"""An engine for those who want to load something: `load`, `chat` and `demo` install one where there is none."""

from __future__ import annotations

import argparse
import asyncio
import os

from supervisor.cli.client import Json
from supervisor.cli.daemon import Daemon, explicit_url
from supervisor.cli.progress import Report
from supervisor.errors import EngineNotFound
from supervisor.paths import places


def engine_of(args: argparse.Namespace, daemon: Daemon, report: Report) -> Json:
    """What the daemon says of its engine, after installing one where it has none.

    Raises EngineNotFound, EngineUnusable, EngineInstallFailed.
    """
    engine = daemon.status.get("engine")
    if isinstance(engine, dict):
        return engine
    if explicit_url(args):
        raise EngineNotFound(f"The daemon at {daemon.client.url} has no engine; run `engine install` on its machine.")
    from supervisor.llamacpp.ensure import ensure_engine  # noqa: PLC0415 - only the first load needs it
    from supervisor.llamacpp.progress import Progress  # noqa: PLC0415 - as above
    from supervisor.smoke import SmokeTest  # noqa: PLC0415 - as above

    def told(step: Progress) -> None:
        report(f"{step.stage} {step.detail}".strip(), step.fraction)

    where, env = places(os.environ), os.environ
    asyncio.run(ensure_engine(where, env, args.engine, smoke_test=SmokeTest(where, env), progress=told))
    engine = daemon.client.get("/api/v1/status").get("engine")
    if not isinstance(engine, dict):
        raise EngineNotFound("An engine was installed, but the daemon does not find it; see `engine which`.")
    return engine
