"""Find the projector that belongs to a model: the file through which it sees or hears."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.core.gguf import GgufHeader
from supervisor.core.spec import lookup
from supervisor.errors import ModelFileError
from supervisor.files.model_file import ModelFile, open_model

_MARK = "mmproj"  # how converters name such files
_WIDTHS = ("clip.vision.projection_dim", "clip.audio.projection_dim")


def projector_beside(model: ModelFile) -> Path | None:
    """Return the projector in the model's folder whose width fits; None if there is none.

    Of several it is the one with the most similar name. Files that cannot be read, and those that do not say what they
    are, are passed over.
    """
    try:
        names = sorted(os.listdir(model.path.parent))
    except OSError:
        return None
    marked = (model.path.with_name(name) for name in names if _MARK in name.lower() and name.endswith(".gguf"))
    fitting = [path for path in marked if path not in model.parts and _fits(path, model.header)]
    return max(fitting, key=lambda path: _alike(path.name, model.path.name), default=None)


def _fits(path: Path, model: GgufHeader) -> bool:
    try:
        header = open_model(path).header
    except ModelFileError:
        return False
    widths = {header.integer(key) for key in _WIDTHS} - {None}
    own = model.integer(f"{model.architecture}.embedding_length")
    return lookup(header.architecture or "").projector and (not widths or own in widths)


def _alike(name: str, other: str) -> int:
    """Return the number of letters with which both begin, whatever surrounds the mark."""
    stem = name.lower().replace(f"{_MARK}-", "").replace(f"-{_MARK}", "")
    return next((place for place, (a, b) in enumerate(zip(stem, other.lower(), strict=False)) if a != b), len(stem))
