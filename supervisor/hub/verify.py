"""Verify models on disk against what the hub says: sizes, hashes, headers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from supervisor.core.repository import is_mlx
from supervisor.errors import ModelFileError
from supervisor.files.mlx_folder import read_mlx
from supervisor.files.model_file import open_model
from supervisor.hub.cachedir import Cached
from supervisor.hub.models import HubModels

_PIECE = 1 << 20


class Stopped(Exception):
    """Nobody wants to know any more."""


def verify_cached(hub: HubModels, one: Cached, stopped: Callable[[], bool] = lambda: False) -> list[str]:
    """Return what is wrong with a variant on disk, a sentence each; reads all of it. Blocks.

    The hub's word is what it said when the listing was read; without one, a content's name is its sha256. Raises
    Stopped as soon as `stopped` says so, which is asked before each MiB.
    """
    told = hub.expected(one.repo, one.commit)
    problems = [f"{path} is missing" for path in one.variant.missing]
    for place, part in zip(one.files, one.variant.parts, strict=True):
        expected = told.get(part.path, part)
        size = place.stat().st_size
        if expected.size is not None and size != expected.size:
            problems.append(f"{part.path} has {size} bytes, not {expected.size}")
        elif expected.sha256:
            found = _sha256(place, stopped)
            if found != expected.sha256:
                problems.append(f"{part.path} has the sha256 {found}, not {expected.sha256}")
    if not problems:
        try:
            _read(one)
        except ModelFileError as error:
            problems.append(error.message)
    return problems


def _read(one: Cached) -> None:
    """Read its headers. Raise ModelFileError."""
    if is_mlx(one.variant):
        read_mlx(one.files[0].parent)
    else:
        open_model(one.files[0])


def _sha256(path: Path, stopped: Callable[[], bool]) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            if stopped():
                raise Stopped
            found.update(piece)
    return found.hexdigest()
