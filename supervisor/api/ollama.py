"""Ollama's own paths, apart from those on which a model answers: lists, facts of models, downloads, removal.

Shapes are those of Ollama 0.33 (`api/types.go`); docs/ollama.md says what is not mapped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from supervisor.api.described import shaped, written
from supervisor.api.errors import envelope
from supervisor.api.large import told
from supervisor.api.leaving import while_there
from supervisor.api.services import DiskOf, ListedOf, LoadsOf, PinningOf, PullsOf, StatusesOf
from supervisor.config.base import Target
from supervisor.core.doors.names import meant_names
from supervisor.core.doors.ollama_models import EVER, Loaded, listed, running, shown
from supervisor.core.stream.apis import OLLAMA, line
from supervisor.errors import InvalidRequest, ModelNotFound, NotSupportedHere, SupervisorError
from supervisor.hub.models import Chosen
from supervisor.service.listed import Listed
from supervisor.service.pinning import Pinning
from supervisor.service.pulls import Pulls
from supervisor.service.status import ModelStatus

router = APIRouter(prefix="/api", tags=["Ollama"])

VERSION: Final = "0.33.0"
"""The version of Ollama's API: clients compare its numbers."""

_LIVING: Final = frozenset({"ready", "draining"})
_HOST: Final = "CPU"
_NDJSON: Final = "application/x-ndjson"
_PARAMETERS: Final = {"n_predict": "num_predict", "max_tokens": "num_predict", "n_keep": "num_keep"}
"""Of a model's defaults, ours → Ollama's; all others have the same name."""


class Named(BaseModel):
    """A model's name: `model`, or in clients of old `name`. What else is sent is ignored, as there."""

    model: Target | None = None
    name: Target | None = None

    def named(self) -> str:
        """Return the name. Raise InvalidRequest where there is none."""
        found = self.model or self.name
        if not found:
            raise InvalidRequest("`model` is required.", param="model")
        return found


class ShowRequest(Named):
    """Which model, and whether long arrays and tensors are wanted, too."""

    verbose: bool | None = None


class PullRequest(Named):
    """What to download."""

    stream: bool | None = None


class CopyRequest(BaseModel):
    """Which model gets which further name."""

    source: Target
    destination: Target


@router.get("/version")
async def version() -> dict[str, str]:
    """The version of Ollama's API that is answered."""
    return {"version": VERSION}


@router.get("/tags")
async def tags(statuses: StatusesOf, models: ListedOf) -> dict[str, Any]:
    """Every model that can be asked for, configured or on disk."""
    entries = {entry.id: entry for entry in models.registry}
    found = [_listed(one, models) for one in statuses.all() if one.id in entries]
    found += [listed(one.name, one.size, one.used, None) for one in await models.on_disk()]
    return {"models": found}


@router.get("/ps")
async def loaded(statuses: StatusesOf, pinning: PinningOf, models: ListedOf) -> dict[str, Any]:
    """The models that are loaded."""
    found = [one for one in statuses.all() if one.state in _LIVING]
    return {"models": [running(one.id, _loaded(one, pinning), models.known(one.id)) for one in found]}


@router.post("/show", **shaped(dict[str, Any]))
async def show(body: ShowRequest, statuses: StatusesOf, models: ListedOf) -> Response:
    """Show what a model's file says of it."""
    entry = models.find(body.named())
    facts = await models.read(entry)
    context = statuses.of(entry.id).n_ctx or entry.options.ctx_size or facts.header.n_ctx_train
    sampling = {_PARAMETERS.get(name, name): value for name, value in entry.requests.sampling.items()}
    parameters = {**({"num_ctx": context} if context else {}), **sampling}
    modified, verbose = models.modified(entry), body.verbose is True
    return await told(lambda: shown(entry.id, modified, parameters, facts, verbose=verbose))


@router.post("/pull", **written(_NDJSON))
async def pull(body: PullRequest, request: Request, pulls: PullsOf, models: ListedOf) -> Response:
    """Download a model of the hub; who leaves calls it off. What is here already is left as it is."""
    name = body.named()
    with suppress(ModelNotFound):
        if models.find(name).hub is None:
            return _done()
    chosen = (await while_there(request, pulls.find(list(meant_names(name))[-1], update=False)))[1]
    if body.stream is False:
        await while_there(request, pulls.fetch(chosen))
        return _done()
    return StreamingResponse(_progress(pulls, chosen), media_type=_NDJSON)


@router.delete("/delete", response_class=Response)
async def delete(body: Named, models: ListedOf, loads: LoadsOf, disk: DiskOf) -> Response:
    """Remove a model's files from the hub's cache; a loaded model is unloaded first."""
    name = list(meant_names(body.named()))[-1]
    with suppress(ModelNotFound):
        entry = models.find(name)
        await loads.unload(entry.id, now=True)
        name = entry.hub or entry.id
    await disk.remove(name)
    return Response()


@router.post("/copy", response_class=Response)
async def copy(body: CopyRequest, models: ListedOf) -> Response:
    """Give a model one more name, until the daemon ends."""
    models.give_name(models.find(body.source).id, list(meant_names(body.destination))[-1])
    return Response()


@router.post("/create", include_in_schema=False)
@router.post("/push", include_in_schema=False)
@router.api_route("/blobs/{digest}", methods=["GET", "POST"], include_in_schema=False)
async def refused(request: Request) -> Response:
    """Refuse what makes models of Modelfiles, or publishes them."""
    raise NotSupportedHere(
        f"{request.method} {request.scope['path']} is not done here: models are GGUF files, of the hub or of the "
        "configuration (docs/ollama.md)."
    )


def _done() -> Response:
    return Response(line({"status": "success"}), media_type=_NDJSON)


def _listed(status: ModelStatus, models: Listed) -> dict[str, object]:
    entry = models.registry.find(status.id)
    return listed(status.id, status.size_bytes, models.modified(entry), models.known(status.id))


def _loaded(status: ModelStatus, pinning: Pinning) -> Loaded:
    held: Mapping[str, int] = status.footprint or {}
    size = sum(held.values()) or status.size_bytes or 0
    policy = pinning.policy(status.id)
    stays = policy.pinned or policy.ttl is None
    expires = status.expires_at or (EVER if stays or policy.ttl is None else time.time() + policy.ttl)
    return Loaded(size, sum(held.values()) - held.get(_HOST, 0), expires, status.n_ctx or 0)


async def _progress(pulls: Pulls, chosen: Chosen) -> AsyncIterator[bytes]:
    try:
        yield line({"status": "pulling manifest"})
        async for told in pulls.follow(chosen):
            for name, (done, total) in _files(told).items():
                yield line({"status": f"pulling {name}", "digest": name, "total": total, "completed": done})
        yield line({"status": "success"})
    except SupervisorError as error:
        yield OLLAMA.stream_error(envelope(error)["error"])


def _files(told: Mapping[str, Any]) -> Mapping[str, tuple[int, int]]:
    """Return bytes that are here, and in all, of each file of a download."""
    files = (told.get("download") or {}).get("files") or []
    return {one["path"]: (one["done_bytes"], one["total_bytes"]) for one in files}
