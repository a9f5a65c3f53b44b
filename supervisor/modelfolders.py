"""The models of a folder that is laid out as for llama-server's `--models-dir` (its README, "Model sources").

    name.gguf                  the model `name`
    name/anything.gguf         the model `name`; of a split one the first part is meant
    name/…mmproj….gguf         its projector
    name/mtp-….gguf            its draft model; also dspark-, dflash-

Only one level is looked at. Hidden files and folders are passed over, and names that cannot name a model
(`passed_over`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.plaintext import is_name

_DRAFTS = ("mtp-", "dspark-", "dflash-")
_PROJECTOR = "mmproj"
_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")


@dataclass(frozen=True, slots=True)
class Found:
    """One model of a folder, and what lies beside it."""

    name: str
    path: Path
    projector: Path | None = None
    draft: Path | None = None


def scan(folder: Path) -> tuple[Found, ...]:
    """The models in the folder, by name; none where it is not there or may not be read."""
    found = {one.name: one for one in scan_files(folder)}
    for entry in _entries(folder):
        if entry.is_dir():
            inside = look_inside(entry, entry.name)
            if inside is not None:
                found[inside.name] = inside
    return tuple(found[name] for name in sorted(found))


def scan_files(folder: Path) -> tuple[Found, ...]:
    """The models that are files of the folder itself; of split ones the first part."""
    files = [entry for entry in _entries(folder) if entry.is_file()]
    return tuple(
        Found(_stem(entry.name), entry) for entry in files if _is_model(entry.name) and _part(entry.name) in {None, 1}
    )


def look_inside(folder: Path, name: str) -> Found | None:
    """The model of one folder: the first part of a split one, else the first file by name; None: there is none."""
    files = [entry for entry in _entries(folder) if entry.name.endswith(".gguf") and entry.is_file()]
    models = [entry for entry in files if _is_model(entry.name) and _part(entry.name) in {None, 1}]
    models.sort(key=lambda entry: (_part(entry.name) is None, entry.name))
    if not models:
        return None
    return Found(
        name,
        models[0],
        next((entry for entry in files if _PROJECTOR in entry.name), None),
        next((entry for entry in files if entry.name.startswith(_DRAFTS)), None),
    )


def passed_over(folder: Path) -> tuple[str, ...]:
    """What in the folder cannot be a model for its name alone: it is no UTF-8, empty, or holds what cannot be seen."""
    return tuple(name for name in _names(folder) if not _is_usable(name))


def _entries(folder: Path) -> Sequence[Path]:
    return [folder / name for name in _names(folder) if not name.startswith(".") and _is_usable(name)]


def _is_usable(name: str) -> bool:
    return is_name(name.removesuffix(".gguf"))


def _names(folder: Path) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return ()


def _is_model(name: str) -> bool:
    return name.endswith(".gguf") and _PROJECTOR not in name and not name.startswith(_DRAFTS)


def _part(name: str) -> int | None:
    found = _PART.search(name)
    return int(found[1]) if found else None


def _stem(name: str) -> str:
    return _PART.sub("", name).removesuffix(".gguf")
