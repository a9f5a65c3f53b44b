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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import Timeout
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # a lazy export

from supervisor.core.repository.forms import is_sha256
from supervisor.hub.guard import Misled
from supervisor.hub.locked import fault_of, folder_in, locked, no_link
from supervisor.hub.partials import partial_of

_SWEEP_SECONDS = 0.2
_NOT_SATISFIABLE = 416


@dataclass(frozen=True)
class Fetched:
    """A content that is in the cache now. checked: by its sha256."""

    blob: Path
    checked: bool


def begin_content(
    job: Mapping[str, Any], file: Mapping[str, Any], reporter: type[Any], checking: Callable[[], None]
) -> Fetched | None:
    """Have a file's content in the cache, where plain HTTP brings it; the client then finds it and links it.

    Gives back what was fetched now. Raises what the client does, OSError where the disk has no room, and Misled for a
    file of which nobody says how large it is. `reporter` is what it takes for a progress bar, `checking` is called
    before a hash is made of all of it.
    """
    repo, path = str(job["repo"]), str(file["path"])
    url = hf_hub_url(repo, path, revision=job["commit"])
    told = get_hf_file_metadata(url)
    if told.size is None:
        raise Misled(f"does not say how large {path} is")
    if told.etag is None or (told.xet_file_data is not None and _uses_xet()):
        return None
    blob = folder_of(repo) / "blobs" / told.etag
    with locked(_cache(), repo, told.etag):
        if blob.exists():
            return None
        blob.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_of(blob.parent, told.etag)
        begun = _go_on(url, partial, told.size, reporter)
        checked = bool(begun) and is_sha256(told.etag)
        if checked:  # what was there may be another's, and is wrong then; all else is looked at by who asked for it
            checking()
            if fault_of(partial, told.size, told.etag):
                kept = int(file.get("kept") or 0)
                os.truncate(partial, kept if kept < begun else 0)
                _go_on(url, partial, told.size, reporter)
                checked = False
        partial.replace(blob)
    return Fetched(blob, checked)


def sweep(repo: str, etag: str) -> None:
    """Remove what killed downloads of this content left, but for what can be gone on with."""
    blobs = folder_of(repo) / "blobs"
    leftovers = [path for path in blobs.glob(f"{etag}.*.incomplete") if path != partial_of(blobs, etag)]
    if leftovers:
        with contextlib.suppress(Timeout, OSError), locked(_cache(), repo, etag, _SWEEP_SECONDS):
            for path in leftovers:  # nobody holds the lock: nobody is at work
                path.unlink(missing_ok=True)


def _go_on(url: str, partial: Path, size: int, reporter: type[Any]) -> int:
    """Fetch what is missing of a content; return how many of its bytes were there."""
    try:
        with open(partial, "ab", opener=no_link) as stream:
            begun = stream.tell()
            if begun > size:
                stream.seek(0)
                stream.truncate()
                begun = 0
            if begun == size:
                return begun
            if size - begun > shutil.disk_usage(partial.parent).free:
                raise OSError(errno.ENOSPC, f"{size - begun} bytes are still to come")
            headers = build_hf_headers()
            http_get(url, stream, resume_size=begun, headers=headers, expected_size=size, tqdm_class=reporter)
            return begun
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


def folder_of(repo: str) -> Path:
    """Return the folder in which the cache keeps a repository."""
    return folder_in(_cache(), repo)


def _cache() -> Path:
    return Path(constants.HF_HUB_CACHE)


def _uses_xet() -> bool:
    return not constants.HF_HUB_DISABLE_XET and importlib.util.find_spec("hf_xet") is not None
