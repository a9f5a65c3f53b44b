"""A file whose download was broken off by the end of its process, and how it is gone on with.

The client (2.4) begins each download in a file of a new name, and removes it when it fails. Its HTTP transfer itself
can begin anywhere, so here it is given one file per content, `blobs/ETAG.partial.incomplete`, under the lock that the
client itself takes for that content. What the Xet transfer brings comes in any order, and cannot be gone on with.

Only the worker's process imports this module: the client takes half a second. The daemon needs `hub/partials`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # a lazy export

from supervisor.hub.guard import Misled
from supervisor.hub.partials import partial_of

_SWEEP_SECONDS = 0.2
_NOT_SATISFIABLE = 416


def begin_content(repo: str, commit: str, path: str, reporter: type[Any]) -> Path | None:
    """Have a file's content in the cache, where plain HTTP brings it; the client then finds it and links it.

    Gives back the content where it was fetched now. Raises what the client does, OSError where the disk has no room,
    and Misled for a file of which nobody says how large it is. `reporter` is what it takes for a progress bar.
    """
    url = hf_hub_url(repo, path, revision=commit)
    told = get_hf_file_metadata(url)
    if told.etag is None or (told.xet_file_data is not None and _uses_xet()):
        return None
    if told.size is None:
        raise Misled(f"does not say how large {path} is")
    blob = folder_of(repo) / "blobs" / told.etag
    with _locked(repo, told.etag):
        if blob.exists():
            return None
        blob.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_of(blob.parent, told.etag)
        _go_on(url, partial, told.size, reporter)
        partial.replace(blob)
    return blob


def sweep(repo: str, etag: str) -> None:
    """Remove what killed downloads of this content left, but for what can be gone on with."""
    blobs = folder_of(repo) / "blobs"
    leftovers = [path for path in blobs.glob(f"{etag}.*.incomplete") if path != partial_of(blobs, etag)]
    if leftovers:
        with contextlib.suppress(Timeout, OSError), _locked(repo, etag, _SWEEP_SECONDS):  # held: somebody is at work
            for path in leftovers:
                path.unlink(missing_ok=True)


def _go_on(url: str, partial: Path, size: int, reporter: type[Any]) -> None:
    try:
        with open(partial, "ab", opener=_no_link) as stream:
            begun = stream.tell()
            if begun > size:
                stream.seek(0)
                stream.truncate()
                begun = 0
            if size - begun > shutil.disk_usage(partial.parent).free:
                raise OSError(errno.ENOSPC, f"{size - begun} bytes are still to come")
            headers = build_hf_headers()
            http_get(url, stream, resume_size=begun, headers=headers, expected_size=size, tqdm_class=reporter)
    except HfHubHTTPError as error:
        if error.response.status_code == _NOT_SATISFIABLE:  # what is there cannot be a beginning
            partial.unlink(missing_ok=True)
        raise
    except Misled:
        partial.unlink(missing_ok=True)
        raise
    except OSError as error:
        if error.errno is None:  # not the disk: the client found the size wrong
            partial.unlink(missing_ok=True)
        raise


def _no_link(path: str, flags: int) -> int:
    """Open a file, but no link in its place: that is none of ours."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextlib.contextmanager
def _locked(repo: str, etag: str, seconds: float = -1) -> Iterator[None]:
    """Hold the lock of a content; negative: wait for it. Raises filelock.Timeout."""
    place = Path(constants.HF_HUB_CACHE) / ".locks" / folder_of(repo).name / f"{etag}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place, timeout=seconds, mode=0o664):
        yield


def folder_of(repo: str) -> Path:
    """Return the folder in which the cache keeps a repository."""
    return Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"


def _uses_xet() -> bool:
    return not constants.HF_HUB_DISABLE_XET and importlib.util.find_spec("hf_xet") is not None
