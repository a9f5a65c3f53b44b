"""`/api/v1`: what the CLI and scripts use. Contract: docs/rest.md, and OpenAPI at /docs."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from supervisor.api.answers import (
    DaemonStatus,
    Devices,
    Estimate,
    Level,
    ModelList,
    PlanDoesNotFit,
    PlanFits,
    Reloaded,
    Restarted,
    Stopping,
    ToolCallList,
)
from supervisor.api.described import shaped, written
from supervisor.api.feed import Followed
from supervisor.api.leaving import while_there
from supervisor.api.mlxanswers import MlxEstimate
from supervisor.api.services import (
    AboutOf,
    AddedOf,
    ConfigurationOf,
    CountsOf,
    FeedOf,
    LoadsOf,
    LogControlOf,
    LogsOf,
    MemoryOf,
    PinningOf,
    PlansOf,
    ReloaderOf,
    ShutDownOf,
    StatusesOf,
    TakeOverOf,
)
from supervisor.config.base import JsonObject, Name, Strict, Target
from supervisor.config.settings import ModelOptions
from supervisor.core.repository import Preference
from supervisor.core.text.loglevel import LogLevel
from supervisor.engines.log import OutputLog
from supervisor.service.configuration import ConfigShown
from supervisor.service.memory import MemoryShown
from supervisor.service.resolve import Asked
from supervisor.service.status import ModelStatus
from supervisor.service.statuses import Statuses

_log = structlog.get_logger()
router = APIRouter(prefix="/api/v1")

_SETTLED = frozenset({"ready", "failed", "backoff", "unloaded"})


class PlanRequest(Strict):
    """What to plan for: `demo`, an absolute path to a GGUF file, or a known id.

    `prefer`: what counts most among the variants of a repository.
    """

    target: Target
    id: Name | None = None
    options: ModelOptions | None = None
    reset: bool = False
    prefer: Preference | None = None


class LoadRequest(PlanRequest):
    """What to load: as in a plan."""

    wait: bool = True


class EstimateRequest(Strict):
    """What to estimate; `options` are those of `estimate`, `ctx_size` a number or a list of them."""

    target: Target
    options: JsonObject = Field(default_factory=dict)


class PinRequest(Strict):
    """Which model."""

    model: Target


class LogLevelRequest(Strict):
    """How much the log is to tell."""

    level: LogLevel


class UnloadRequest(Strict):
    """Which model goes: after its running requests, or `now`."""

    model: Target
    now: bool = False


@router.get("/status", **shaped(DaemonStatus))
async def status(about: AboutOf) -> dict[str, Any]:
    """The daemon, its engine binary and all models."""
    return await about.status()


@router.get("/devices", **shaped(Devices))
async def devices(plans: PlansOf, again: bool = False) -> dict[str, Any]:
    """GPUs, RPC workers and the host, and what is free for engines; `again` asks all sources anew."""
    return await plans.devices(again=again)


@router.get("/memory", **shaped(MemoryShown))
async def memory(memory: MemoryOf) -> dict[str, Any]:
    """Tell what holds the memory of each device: models by part, other programs, what is free."""
    return await memory.shown()


@router.get("/toolcalls", **shaped(ToolCallList))
async def tool_calls(counts: CountsOf) -> dict[str, Any]:
    """Count what became of tool calls in answers, by model, since the daemon started."""
    return counts.to_json()


@router.get("/models", **shaped(ModelList))
async def models(statuses: StatusesOf) -> dict[str, Any]:
    """All models with their state."""
    return {"models": [status.to_json() for status in statuses.all()]}


@router.post("/plan", **shaped(PlanFits | PlanDoesNotFit))
async def plan(body: PlanRequest, request: Request, plans: PlansOf) -> dict[str, Any]:
    """Plan where a model would go now: devices, context, flags, who would have to leave; or say why it does not fit."""
    asked = Asked(body.target, body.id, body.options, body.reset, body.prefer)
    return await while_there(request, plans.plan(asked))


@router.post("/estimate", **shaped(Estimate | MlxEstimate | Sequence[Estimate | MlxEstimate]))
async def estimate(body: EstimateRequest, request: Request, plans: PlansOf) -> dict[str, Any] | list[dict[str, Any]]:
    """Estimate what llama-server would allocate for a model, from the header alone; an array for several contexts."""
    return await while_there(request, plans.estimate(body.target, body.options))


@router.post("/models/load", **shaped(ModelStatus, also=202, streamed=True))
async def load(
    body: LoadRequest, request: Request, loads: LoadsOf, statuses: StatusesOf
) -> JSONResponse | StreamingResponse:
    """Load a model. With `Accept: text/event-stream` its status is streamed until it is ready or has failed."""
    streamed = "text/event-stream" in request.headers.get("accept", "")
    asked = Asked(body.target, body.id, body.options, body.reset, body.prefer)
    model = await loads.ask(asked, at_once=not body.wait and not streamed)
    if streamed:
        return StreamingResponse(_progress(statuses, model), media_type="text/event-stream")
    if not body.wait:
        return JSONResponse(statuses.of(model).to_json(), 202)
    return JSONResponse((await loads.over(model)).to_json())


@router.post("/models/unload", **shaped(ModelStatus))
async def unload(body: UnloadRequest, loads: LoadsOf) -> dict[str, Any]:
    """Unload a model; answers when its process is gone."""
    return (await loads.unload(body.model, now=body.now)).to_json()


@router.post("/models/pin", **shaped(ModelStatus))
async def pin(body: PinRequest, pinning: PinningOf) -> dict[str, Any]:
    """Keep a model, once it is loaded, from leaving for idleness or for others' room; until unpinned or restarted."""
    return pinning.pin(body.model, pinned=True).to_json()


@router.post("/models/unpin", **shaped(ModelStatus))
async def unpin(body: PinRequest, pinning: PinningOf) -> dict[str, Any]:
    """Let a model leave again."""
    return pinning.pin(body.model, pinned=False).to_json()


@router.post("/models/forget", **shaped(ModelStatus))
async def forget(body: PinRequest, added: AddedOf) -> dict[str, Any]:
    """Drop a model that a load added and that is not loaded; its files stay."""
    return added.forget(body.model).to_json()


@router.get("/config", **shaped(ConfigShown))
async def config(configuration: ConfigurationOf, model: Target | None = None) -> dict[str, Any]:
    """The values in force and where each comes from, secrets hidden; with `model`, what is set for it."""
    return configuration.of(model)


@router.post("/config/reload", **shaped(Reloaded))
async def reload_config(reloader: ReloaderOf) -> dict[str, Any]:
    """Read the configuration again and take it over, or refuse it whole and say why."""
    return await reloader.reload()


@router.get("/logs", response_class=StreamingResponse, **written("text/plain"))
async def logs(
    found: LogsOf,
    feed: FeedOf,
    model: Target | None = None,
    lines: Annotated[int, Query(ge=0, le=10_000)] = 100,
    follow: bool = False,
) -> StreamingResponse:
    """The last lines of a model's engine, or of the daemon itself; `follow` keeps the answer open for new ones."""
    log = found.of(model)
    headers = {"content-type": "text/plain; charset=utf-8"}
    return (
        Followed(feed, _follow(log, lines), headers) if follow else StreamingResponse(_tail(log, lines), 200, headers)
    )


@router.get("/logs/level", **shaped(Level))
async def log_level(control: LogControlOf) -> dict[str, LogLevel]:
    """Return how much the daemon's log tells."""
    return {"level": control.level}


@router.post("/logs/level", **shaped(Level))
async def set_log_level(control: LogControlOf, body: LogLevelRequest) -> dict[str, LogLevel]:
    """Have the daemon's log tell more or less, until the daemon ends or the configuration says another level."""
    control.set_level(body.level)
    _log.info("log_level", level=body.level)
    return {"level": body.level}


@router.post("/restart", **shaped(Restarted))
async def restart(take_over: TakeOverOf) -> dict[str, object]:
    """Have the program on disk, with its configuration, take over. Engines and streams go on (docs/upgrade.md)."""
    await take_over()
    return {"status": "restarted", "pid": os.getppid()}


@router.post("/shutdown", **shaped(Stopping, status=202))
async def shutdown(stop: ShutDownOf) -> dict[str, str]:
    """Stop the daemon and every engine."""
    stop()
    return {"status": "stopping"}


async def _progress(statuses: Statuses, model_id: str) -> AsyncIterator[str]:
    async for shown in statuses.follow(model_id):
        yield f"data: {json.dumps(shown.to_json())}\n\n"
        if shown.state in _SETTLED:
            return


async def _tail(log: OutputLog, lines: int) -> AsyncIterator[str]:
    for line in log.tail(lines):
        yield line + "\n"


async def _follow(log: OutputLog, lines: int) -> AsyncIterator[str]:
    with log.subscribe(last=lines) as following:
        async for line in following:
            yield line + "\n"
