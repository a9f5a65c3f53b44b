"""Loading a model through the daemon, with its progress; used by `load`, `chat` and `demo`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from supervisor.cli.client import Json, remote_error
from supervisor.cli.daemon import Daemon
from supervisor.cli.progress import Report, TimeLeft
from supervisor.cli.prose import is_terminal
from supervisor.cli.render import note, size, state_word
from supervisor.errors import DaemonError, LoadCancelled, SupervisorError

_MINUTE = 60
_HUB_SLASHES = 2  # of owner/repo/file.gguf


def parse_target(text: str) -> str:
    """Return the target as the daemon takes it: `demo`, an id, a model of the hub, or an absolute path.

    A path begins with `.`, `/` or `~`, or is there, or ends in `.gguf` and has less than two folders.
    """
    path = os.path.expanduser(text)
    local = text.lower().endswith(".gguf") and text.count("/") < _HUB_SLASHES and "://" not in text
    if local or text.startswith((".", "/", "~")) or ("/" in text and os.path.exists(path)):
        return os.path.abspath(path)
    return text


def load(daemon: Daemon, body: Json, report: Report) -> Json:
    """Load by the REST body `{target, id?, options?}` and return the model's status once it is ready.

    Ctrl-C (KeyboardInterrupt) unloads what was being loaded before it goes on. Raises RemoteError, LoadCancelled,
    DaemonError.
    """
    status: Json = {}
    told, left = _Teller(), TimeLeft()
    try:
        with contextlib.closing(daemon.client.events("/api/v1/models/load", body)) as events:
            for event in events:
                status = daemon.client.parsed(event)
                told.tell(status)
                if status["state"] == "failed":
                    raise remote_error(status)
                report(*_stage(status, left))
    except KeyboardInterrupt:
        with contextlib.suppress(SupervisorError):
            daemon.client.post("/api/v1/models/unload", {"model": status.get("id") or body["target"]}, timeout=None)
        raise
    if status.get("state") == "unloaded":
        raise LoadCancelled(f"Somebody unloaded {status['id']} while it was loading.")
    if status.get("state") != "ready":
        raise DaemonError("The daemon broke off before the model was ready; see `supervisor logs`.")
    return status


class _Teller:
    """Says once what has to be said of a load: remarks, and the variants there were to choose from."""

    def __init__(self) -> None:
        self._told = False

    def tell(self, status: Json) -> None:
        """Print what has to be said of the load, once."""
        if self._told:
            return
        self._told = True
        if status.get("note"):
            note(f"note: {status['note']}")
        for line in variant_lines(status.get("variants") or ()):
            note(line)


def variant_lines(variants: Sequence[Json]) -> list[str]:
    """Format a table of variants, as lines."""
    rows = [
        (
            "→" if one["chosen"] else " ",
            one["name"],
            size(one["size_bytes"]),
            "fits" if one["well"] else "tight" if one["fits"] else "no",
            one["note"],
        )
        for one in variants
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def download_text(download: Json) -> str:
    """Format the state of a download: bytes, rate, time left."""
    rate, left = download.get("bytes_per_second"), download.get("eta_seconds")
    found = [f"{size(download['done_bytes'])} of {size(download['total_bytes'])}"]
    source = download.get("from")
    found += [f"from {source}"] if source not in {None, "hub"} else []
    found += [f"{size(rate)}/s"] if rate else []
    found += [f"{_duration(left)} left"] if left else []
    found += [download["note"]] if download.get("note") else []
    return ", ".join(found)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= _MINUTE else f"{whole} s"


def _stage(status: Json, left: TimeLeft) -> tuple[str, float | None]:
    """Format a status for a waiting person; with figures that change only where a line can be drawn anew."""
    stage, download = status.get("stage"), status.get("download")
    if download and is_terminal(sys.stderr):
        return f"{status['id']}: {stage} {download_text(download)}", status.get("progress")
    soon = left.text(status.get("progress")) if is_terminal(sys.stderr) else ""
    told = f" ({', '.join(filter(None, (stage, soon)))})" if stage or soon else ""
    return f"{status['id']}: {state_word(status['state'])}{told}", status.get("progress")
