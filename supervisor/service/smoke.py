"""Does this `llama-server` work here? Starts it with the built-in model and asks it something."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.launch import LaunchOptions, ModelFacts, build_launch
from supervisor.demo.aside import make_demo_model
from supervisor.engines.client import EngineUnreachable
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.llama.manner import llama_engine
from supervisor.engines.log import OutputLog
from supervisor.errors import EngineStartFailed, EngineUnusable
from supervisor.llamacpp.libraries import runtime_libraries
from supervisor.system.paths import Places
from supervisor.system.sockets import fresh_socket

_QUESTION = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 16}
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class SmokeTest:
    """Call it with the path of a binary; raises EngineUnusable, with the telling log lines, if it does not answer."""

    places: Places
    env: Mapping[str, str]

    async def __call__(self, binary: Path) -> None:
        """Start, ask, stop."""
        model = await make_demo_model(self.places.cache)
        socket = str(fresh_socket(self.places.runtime))
        options, libraries = LaunchOptions(ctx_size=512), runtime_libraries(binary, self.env)
        launch = build_launch(str(binary), str(model), socket, "smoke-test", options, ModelFacts(), libraries=libraries)
        engine = llama_engine(
            launch,
            log=OutputLog(None),
            record_dir=self.places.pid_records,
            limits=EngineLimits(),
            environ=self.env,
        )
        try:
            await engine.start(lambda _: None)
            await _ask(engine)
        except EngineStartFailed as error:
            raise EngineUnusable(f"{binary} does not start: {error.message}", log_lines=error.log_lines) from error
        finally:
            await engine.stop()


async def _ask(engine: Engine) -> None:
    body = json.dumps(_QUESTION).encode()
    try:
        async with asyncio.timeout(_ANSWER_SECONDS), engine.client.post("/v1/chat/completions", body) as answer:
            text = (await answer.json())["choices"][0]["message"]["content"]
    except (EngineUnreachable, TimeoutError, LookupError, TypeError, ValueError) as error:
        raise EngineUnusable(f"It starts, but gives no answer: {error!r}", log_lines=engine.tail(10)) from error
    if not text:
        raise EngineUnusable("It starts, but its answer is empty.", log_lines=engine.tail(10))
