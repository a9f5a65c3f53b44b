"""Loading a model through the daemon, with its progress; used by `load`, `chat` and `demo`."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

from supervisor.cli.client import Json, remote_error
from supervisor.cli.daemon import Daemon
from supervisor.cli.progress import Report
from supervisor.errors import DaemonError, LoadCancelled, SupervisorError, UsageError

_HUB = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


def parse_target(text: str) -> str:
    """The target as the daemon wants it: `demo`, an id, or an absolute path. Raises UsageError for one on a hub."""
    path = Path(text).expanduser()
    if text.lower().endswith(".gguf") or text.startswith((".", "/", "~")) or ("/" in text and path.exists()):
        return os.path.abspath(path)
    if _HUB.fullmatch(text):
        raise UsageError(
            f"{text}: models on a hub are not supported yet. Give the path of a .gguf file, a known id, or `demo`.",
            param="target",
        )
    return text


def load(daemon: Daemon, body: Json, report: Report) -> Json:
    """Load by the REST body `{target, id?, options?}` and return the model's status once it is ready.

    Ctrl-C (KeyboardInterrupt) unloads what was being loaded before it goes on. Raises RemoteError, LoadCancelled,
    DaemonError.
    """
    status: Json = {}
    try:
        with contextlib.closing(daemon.client.events("/api/v1/models/load", body)) as events:
            for event in events:
                status = json.loads(event)
                if status["state"] == "failed":
                    raise remote_error(status)
                report(*_stage(status))
    except KeyboardInterrupt:
        with contextlib.suppress(SupervisorError):
            daemon.client.post("/api/v1/models/unload", {"model": status.get("id") or body["target"]}, timeout=None)
        raise
    if status.get("state") == "unloaded":
        raise LoadCancelled(f"Somebody unloaded {status['id']} while it was loading.")
    if status.get("state") != "ready":
        raise DaemonError("The daemon broke off before the model was ready; see `supervisor logs`.")
    return status


def _stage(status: Json) -> tuple[str, float | None]:
    """What to tell a waiting person about a status."""
    stage = status.get("stage")
    return f"{status['id']}: {status['state']}" + (f" ({stage})" if stage else ""), status.get("progress")
