"""The process in which the hub's own client runs: it can be ended at any moment, which a thread cannot.

A job is one JSON line on stdin; what happens is JSON lines on stdout. When stdin closes, whoever wanted the work is
gone. The token comes in the environment.

    {"do": "download", "repo", "commit", "files": [{"path", "size", "sha256", "etag", "kept"}], "verify", "patience"}
        → {"event": "progress", "path", "done", "total"}, {"event": "checking", "path"}, {"event": "done", "path"} …
    {"do": "remove", "paths": [of links in snapshots]}    → {"event": "removed", "bytes"}
    whatever goes wrong → {"event": "error", "kind", "message", "status", "code", "retry_after"}
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from huggingface_hub import constants, hf_hub_download, scan_cache_dir, try_to_load_from_cache

from supervisor.hub.guard import Guard, Misled, limit_files
from supervisor.hub.locked import fault_of
from supervisor.hub.partial import begin_content, folder_of, sweep
from supervisor.hub.partials import partial_of

Json = dict[str, Any]

_ATTEMPTS = 4
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 60.0
_REPORT_SECONDS = 0.1
_PIECE = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def main() -> int:
    """Do one job; return 0 if it was done."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # our parent decides
    with contextlib.suppress(AttributeError):  # not on Windows
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a limit on file sizes is an error like any other
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_watch_stdin, daemon=True).start()
    try:
        if job["do"] == "download":
            _download(job)
        else:
            _remove(job)
    except Exception as error:  # noqa: BLE001 - the boundary: everything becomes a line for our parent
        _say(_described(error))
        return 1
    except SystemExit as told:  # what was open is closed; threads of the client are not waited for
        os._exit(int(told.code or 0))
    return 0


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit(143)


def _watch_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _say(line: Json) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


# ── download ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _download(job: Json) -> None:
    constants.DOWNLOAD_CHUNK_SIZE = _PIECE  # how often it reports and writes; its own 10 MB is minutes on a slow line
    guard = Guard(job["patience"])
    guard.install()
    for file in job["files"]:
        guard.expect(job["repo"], job["commit"], file)
        limit_files(file["size"])
        place = _insist(job, file, guard)
        if job["verify"] and place not in _known:
            _check(place, file, folder_of(job["repo"]) / "blobs")
        _say({"event": "done", "path": file["path"]})


_known: set[Path] = set()  # what was checked: now, or when it came into the cache
_fetched: set[Path] = set()  # contents that came by plain HTTP


def _insist(job: Json, file: Json, guard: Guard) -> Path:
    wait = _FIRST_WAIT
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _fetch(job, file)
        except Exception as error:
            guard.rest()
            told = _described(error)
            pause = told["retry_after"] if told["retry_after"] is not None else wait
            if told["kind"] != "busy" or attempt == _ATTEMPTS or pause > _LONGEST_WAIT:
                raise
            _say({"event": "waiting", "path": file["path"], "seconds": pause})
            time.sleep(pause)
            wait *= 2
    raise AssertionError("the last attempt returns or raises")


def _fetch(job: Json, file: Json) -> Path:
    names = {"repo_id": job["repo"], "filename": file["path"], "revision": job["commit"]}
    there = try_to_load_from_cache(**names)
    if isinstance(there, str):
        _known.add(Path(there))
        return Path(there)
    reporter = type("Reporter", (_Reporter,), {"path": file["path"]})
    if file.get("etag"):
        sweep(job["repo"], file["etag"])
    fetched = begin_content(job, file, reporter, lambda: _say({"event": "checking", "path": file["path"]}))
    if fetched is not None:
        _fetched.add(fetched.blob)
    place = Path(hf_hub_download(**names, tqdm_class=reporter))
    if fetched is not None and fetched.checked:
        _known.add(place)
    if fetched is None and file.get("etag"):  # it came in another way than what had begun to
        partial_of(folder_of(job["repo"]) / "blobs", file["etag"]).unlink(missing_ok=True)
    return place


class _Reporter:
    """A stand-in for the client's progress bar: it says what arrives, a few times a second."""

    path = ""

    def __init__(self, *_args: Any, total: int | None = None, initial: int = 0, **_more: Any) -> None:
        self.total = total
        self.n = initial
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Close nothing: there is nothing open."""

    def update(self, n: float | None = 1) -> None:
        self.n += int(n or 0)
        now = time.monotonic()
        if now - self._told >= _REPORT_SECONDS or (self.total and self.n >= self.total):
            self._told = now
            _say({"event": "progress", "path": self.path, "done": self.n, "total": self.total})

    def _ignore(self, *_args: Any, **_more: Any) -> None:
        """Ignore what only a picture on a terminal needs."""

    update_transfer = set_postfix_str = set_transfer_postfix_str = refresh = close = _ignore


def _check(place: Path, file: Json, blobs: Path) -> None:
    """Compare size and sha256 with the hub's.

    What is wrong is removed: the link, and the content if this is its own name.
    """
    if file.get("sha256"):
        _say({"event": "checking", "path": file["path"]})
    problem = fault_of(place, file.get("size"), file.get("sha256"))
    if problem:
        blob = Path(os.path.abspath(place.parent / os.readlink(place))) if place.is_symlink() else place
        place.unlink(missing_ok=True)
        if blob.parent == Path(os.path.abspath(blobs)) and (blob in _fetched or blob.name == file.get("sha256")):
            blob.unlink(missing_ok=True)
        raise _Damaged(f"{file['path']} {problem}; it was removed, try again")


class _Damaged(Exception):
    pass


# ── remove ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _remove(job: Json) -> None:
    wanted = {str(_real(Path(path))) for path in job["paths"]}
    info = scan_cache_dir()
    files = [
        file
        for repo in info.repos
        for revision in repo.revisions
        for file in revision.files
        if str(file.file_path) in wanted
    ]
    strategy = info.delete_files(*files)
    kept = {blob for blob in strategy.blobs if blob.parent not in {repo.repo_path / "blobs" for repo in info.repos}}
    freed = strategy.expected_freed_size - sum(blob.stat().st_size for blob in kept)
    replace(strategy, blobs=strategy.blobs - kept).execute()
    for path in wanted:
        _remove_empty(Path(path).parent)
    _say({"event": "removed", "bytes": freed})


def _real(link: Path) -> Path:
    """Return the path by which the client knows a file of the cache: its folder may be a link, and the file is one."""
    return link.parent.resolve() / link.name


def _remove_empty(folder: Path) -> None:
    """Remove folders of a snapshot that are empty now, up to and with the commit's."""
    while "snapshots" in folder.parts and folder.name != "snapshots":
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


# ── what went wrong ──────────────────────────────────────────────────────────────────────────────────────────────


def _described(error: BaseException) -> Json:
    """Return an error as a line. kind: refused (status and code tell more), or as `_kind` says."""
    response = next((found for one in _chain(error) if (found := getattr(one, "response", None)) is not None), None)
    status = getattr(response, "status_code", None)
    headers = getattr(response, "headers", {})
    told: Json = {
        "event": "error",
        "kind": _kind(error, status),
        "message": " ".join(str(error).split())[:500] or type(error).__name__,
        "status": status,
        "code": headers.get("X-Error-Code"),
        "retry_after": None,
    }
    with contextlib.suppress(KeyError, ValueError):
        seconds = float(headers["Retry-After"])
        told["retry_after"] = None if math.isnan(seconds) else max(0.0, seconds)
    return told


def _kind(error: BaseException, status: int | None) -> str:
    if isinstance(error, _Damaged):
        return "damaged"
    if any(isinstance(one, Misled) for one in _chain(error)):
        return "misled"
    if any(isinstance(one, OSError) and one.errno in _FULL for one in _chain(error)):
        return "full"
    if status is not None:
        return "busy" if status in {408, 429} or status >= 500 else "refused"
    names = {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}
    if names & {"ConnectError", "ConnectTimeout", "OfflineModeIsEnabled", "ProxyError"}:
        return "unreachable"
    return "failed"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


if __name__ == "__main__":
    sys.exit(main())
