"""Loading and unloading a model through the daemon, for LocalAI."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from urllib.parse import quote

from supervisor.cli.client import Client, Json, remote_error
from supervisor.core.localai.loaded import Loaded
from supervisor.core.localai.loading import Wanted, lacking
from supervisor.core.localai.messages import ModelOptions
from supervisor.errors import DaemonError, InvalidRequest, LoadCancelled, ModelIdTaken, RemoteError, SupervisorError

_LEAVING_SECONDS = 5.0


def load(client: Client, asked: ModelOptions, wants: Wanted, has_left: Callable[[], bool]) -> tuple[Loaded, str]:
    """Load a model and return it once it is ready, with a remark or an empty text.

    What was begun for a client that has left is unloaded. Raises RemoteError, LoadCancelled, InvalidRequest for files
    that the model does not have, DaemonError.
    """
    before = {one["id"] for one in client.get("/api/v1/models").get("models") or () if one["state"] == "ready"}
    status: Json = {}
    try:
        _load(client, asked, wants.options, status)
        _check_files(client, status["id"], wants)
    except SupervisorError:
        if status.get("id", "") not in {*before, ""} and (has_left() or status.get("state") == "ready"):
            with contextlib.suppress(SupervisorError):
                unload(client.telling(lambda _: None), status["id"], timeout=_LEAVING_SECONDS, now=True)
        raise
    return Loaded(asked.model, status["id"], status["id"] not in before), status.get("note") or ""


def unload(client: Client, model: str, timeout: float | None, *, now: bool = False) -> None:
    """Unload a model, after its requests or `now`. timeout: seconds to wait for its end. Raises as `Client.post`."""
    client.post("/api/v1/models/unload", {"model": model, "now": now}, timeout=timeout)


def _load(client: Client, asked: ModelOptions, options: Json, status: Json) -> None:
    """Load, and keep the newest status in `status`."""
    target = asked.model_file if os.path.isfile(asked.model_file) else asked.model
    body: Json = {"target": os.path.abspath(target) if target == asked.model_file else target, "options": options}
    try:
        _follow(client, body, status)
    except RemoteError as error:
        if error.code != ModelIdTaken.code or target != asked.model_file:
            raise
        _follow(client, {**body, "id": asked.model}, status)  # another file of the same name was here first


def _follow(client: Client, body: Json, status: Json) -> None:
    with contextlib.closing(client.events("/api/v1/models/load", body)) as events:
        for event in events:
            status.update(client.parsed(event))
            if status["state"] == "failed":
                raise remote_error(status)
    if status.get("state") == "unloaded":
        raise LoadCancelled(f"Somebody unloaded {status['id']} while it was loading.")
    if status.get("state") != "ready":
        raise DaemonError("The daemon broke off before the model was ready; see `supervisor logs`.")


def _check_files(client: Client, model: str, wants: Wanted) -> None:
    """Raise InvalidRequest where the engine lacks a file that LocalAI names, which no client may name to it."""
    if not wants.files:
        return
    words = (client.get(f"/v1/models/{quote(model)}").get("status") or {}).get("args") or ()
    found = lacking(wants, words, os.path.realpath)
    if found is not None:
        option, path = found
        raise InvalidRequest(
            f"{model} was not launched with {path}: a file is for the configuration alone. Give the model"
            f" `{option}` there, and LocalAI may name it.",
            param=option,
        )
