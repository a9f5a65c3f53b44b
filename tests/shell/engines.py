"""Engines for tests: made in a scratch folder, and looked after there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from supervisor.core.launch import LaunchOptions, ModelFacts, build_launch
from supervisor.engines.engine import Engine, EngineLimits, LoadProgress, ReadyInfo
from supervisor.engines.llama.manner import llama_engine
from supervisor.engines.log import OutputLog
from supervisor.system import processes
from supervisor.system.owned import MARKER
from supervisor.system.sockets import fresh_socket
from tests.shell.waiting import until
from tests.support.patience import PATIENCE


class Bench:
    """A folder with all that engines need and leave, and what they reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "run"
        self.records = folder / "children"
        self.log = OutputLog(folder / "engine.log")
        self.progress: list[LoadProgress] = []

    def engine(
        self,
        binary: str | Path,
        *args: str,
        model: Path = Path("/none.gguf"),
        limits: EngineLimits | None = None,
        parallel: int | None = None,
    ) -> Engine:
        socket = str(fresh_socket(self.runtime))
        options = LaunchOptions(parallel=parallel, threads=1, extra_args=args)
        launch = build_launch(str(binary), str(model), socket, "test", options, ModelFacts())
        return llama_engine(launch, log=self.log, record_dir=self.records, limits=limits or EngineLimits())

    async def start(self, engine: Engine) -> ReadyInfo:
        async with asyncio.timeout(PATIENCE):
            return await engine.start(self.progress.append)

    async def starting(self, engine: Engine, stage: str = "text_model") -> asyncio.Task[ReadyInfo]:
        """Start in the background and wait for a stage of loading."""
        task = asyncio.create_task(self.start(engine))
        await until(lambda: any(step.stage == stage for step in self.progress), f"the stage {stage}")
        return task

    def assert_nothing_left(self, engine: Engine) -> None:
        """No process, no socket, no record: what must hold after every end."""
        if engine.pid is not None:
            assert processes.session_members(engine.pid) == ()
        assert engine.exit.done()
        assert os.listdir(self.runtime) == [MARKER]
        assert not self.records.exists() or os.listdir(self.records) == []
