"""`/api/v1`: what the CLI and scripts use. Contract: docs/rest.md, and OpenAPI at /docs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from supervisor.api.service import Service, ServiceOf
from supervisor.config.base import JsonObject, Name, Strict, Target
from supervisor.config.settings import ModelOptions
from supervisor.core.text.loglevel import LogLevel
from supervisor.engines.log import OutputLog
from supervisor.service.resolve import Asked

_log = structlog.get_logger()
router = APIRouter(prefix="/api/v1")

_SETTLED = frozenset({"ready", "failed", "backoff", "unloaded"})


class PlanRequest(Strict):
    """What to plan for: `demo`, an absolute path to a GGUF file, or a known id."""

    target: Target
    id: Name | None = None
    options: ModelOptions | None = None
    reset: bool = False


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


@router.get("/status")
async def status(service: ServiceOf) -> dict[str, Any]:
    """The daemon, its engine binary and all models."""
    return await service.status()


@router.get("/devices")
async def devices(service: ServiceOf, again: bool = False) -> dict[str, Any]:
    """GPUs, RPC workers and the host, and what is free for engines; `again` asks all sources anew."""
    return await service.devices(again=again)


@router.get("/toolcalls")
async def tool_calls(service: ServiceOf) -> dict[str, Any]:
    """What became of tool calls in answers, by model, since the daemon started."""
    return {"models": {model: counts.to_json() for model, counts in service.tool_calls.counts.items()}}


@router.get("/models")
async def models(service: ServiceOf) -> dict[str, Any]:
    """All models with their state."""
    return {"models": service.models()}


@router.post("/plan")
async def plan(body: PlanRequest, service: ServiceOf) -> dict[str, Any]:
    """Where a model would go now: devices, context, flags, who would have to leave; or why it does not fit."""
    return await service.plan(Asked(body.target, body.id, body.options, body.reset))


@router.post("/estimate")
async def estimate(body: EstimateRequest, service: ServiceOf) -> dict[str, Any] | list[dict[str, Any]]:
    """What llama-server would allocate for a model, from the header alone; an array for several contexts."""
    return await service.estimate(body.target, body.options)


@router.post("/models/load", response_model=None)
async def load(body: LoadRequest, request: Request, service: ServiceOf) -> JSONResponse | StreamingResponse:
    """Load a model. With `Accept: text/event-stream` its status is streamed until it is ready or has failed."""
    streamed = "text/event-stream" in request.headers.get("accept", "")
    asked = Asked(body.target, body.id, body.options, body.reset)
    model = await service.ask_load(asked, at_once=not body.wait and not streamed)
    if streamed:
        return StreamingResponse(_progress(service, model), media_type="text/event-stream")
    if not body.wait:
        return JSONResponse(service.model(model), 202)
    return JSONResponse(await service.loaded(model))


@router.post("/models/unload")
async def unload(body: UnloadRequest, service: ServiceOf) -> dict[str, Any]:
    """Unload a model; answers when its process is gone."""
    return await service.unload(body.model, now=body.now)


@router.post("/models/pin")
async def pin(body: PinRequest, service: ServiceOf) -> dict[str, Any]:
    """Keep a model, once it is loaded, from leaving for idleness or for others' room; until unpinned or restarted."""
    return service.pin(body.model, pinned=True)


@router.post("/models/unpin")
async def unpin(body: PinRequest, service: ServiceOf) -> dict[str, Any]:
    """Let a model leave again."""
    return service.pin(body.model, pinned=False)


@router.post("/models/forget")
async def forget(body: PinRequest, service: ServiceOf) -> dict[str, Any]:
    """Drop a model that a load added and that is not loaded; its files stay."""
    return service.forget(body.model)


@router.post("/config/reload")
async def reload_config(service: ServiceOf) -> dict[str, Any]:
    """Read the configuration again and take it over, or refuse it whole and say why."""
    return await service.reloader.reload()


@router.get("/logs", response_model=None)
async def logs(
    service: ServiceOf,
    model: Target | None = None,
    lines: Annotated[int, Query(ge=0, le=10_000)] = 100,
    follow: bool = False,
) -> StreamingResponse:
    """The last lines of a model's engine, or of the daemon itself; `follow` keeps the answer open for new ones."""
    log = service.log(model)
    shown = _follow(log, lines) if follow else _tail(log, lines)
    return StreamingResponse(shown, media_type="text/plain; charset=utf-8")


@router.get("/logs/level")
async def log_level(service: ServiceOf) -> dict[str, LogLevel]:
    """How much the daemon's log tells."""
    return {"level": service.log_control.level}


@router.post("/logs/level")
async def set_log_level(service: ServiceOf, body: LogLevelRequest) -> dict[str, LogLevel]:
    """Have the daemon's log tell more or less, until the daemon ends or the configuration says another level."""
    service.log_control.level = body.level
    _log.info("log_level", level=body.level)
    return {"level": body.level}


@router.post("/shutdown", status_code=202)
async def shutdown(service: ServiceOf) -> dict[str, str]:
    """Stop the daemon and every engine."""
    service.request_shutdown()
    return {"status": "stopping"}


async def _progress(service: Service, model_id: str) -> AsyncIterator[str]:
    async for shown in service.follow(model_id):
        yield f"data: {json.dumps(shown)}\n\n"
        if shown["state"] in _SETTLED:
            return


async def _tail(log: OutputLog, lines: int) -> AsyncIterator[str]:
    for line in log.tail(lines):
        yield line + "\n"


async def _follow(log: OutputLog, lines: int) -> AsyncIterator[str]:
    with log.subscribe(last=lines) as following:
        async for line in following:
            yield line + "\n"
