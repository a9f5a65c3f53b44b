"""Find the models of a folder laid out as for llama-server's `--models-dir` (its README, "Model sources").

    name.gguf                  the model `name`
    name/anything.gguf         the model `name`; of a split one the first part is meant
    name/…mmproj….gguf         its projector
    name/mtp-….gguf            its draft model; also dspark-, dflash-

Only one level is looked at. Hidden files and folders are passed over, so are names that cannot name a model
(`passed_over`), and what by its content is no model: an adapter, a projector of whatever name, a file that is no GGUF.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from supervisor.core.gguf import PEEK, FileKind, kind_of_file, shard_of
from supervisor.core.text.plaintext import is_name

_DRAFTS = ("mtp-", "dspark-", "dflash-")
_PROJECTOR = "mmproj"


@dataclass(frozen=True, slots=True)
class FolderModel:
    """A model of a folder, and the files beside it."""

    name: str
    path: Path
    projector: Path | None = None
    draft: Path | None = None


def scan(folder: Path) -> tuple[FolderModel, ...]:
    """Return the models in the folder, by name; none where it is not there or may not be read."""
    found = {one.name: one for one in scan_files(folder)}
    for entry in _entries(folder):
        if os.path.isdir(entry):
            inside = look_inside(entry, entry.name)
            if inside is not None:
                found[inside.name] = inside
    return tuple(found[name] for name in sorted(found))


def scan_files(folder: Path) -> tuple[FolderModel, ...]:
    """Return the models that are files of the folder itself; of split ones the first part."""
    files = [entry for entry in _entries(folder) if os.path.isfile(entry)]
    return tuple(FolderModel(_stem(entry.name), entry) for entry in files if _is_model(entry))


def left_out(folder: Path) -> tuple[Path, ...]:
    """Return files of the folder that are named like a model but are none by their content."""
    named = [entry for entry in _entries(folder) if _is_called_a_model(entry.name) and not os.path.isdir(entry)]
    return tuple(entry for entry in named if not _is_model(entry))


def look_inside(folder: Path, name: str) -> FolderModel | None:
    """Return the model of one folder: the first part of a split one, else the first file by name; None without any."""
    files = [entry for entry in _entries(folder) if entry.name.endswith(".gguf") and os.path.isfile(entry)]
    models = [entry for entry in files if _is_model(entry)]
    models.sort(key=lambda entry: (_part(entry.name) is None, entry.name))
    if not models:
        return None
    return FolderModel(
        name,
        models[0],
        next((entry for entry in files if _PROJECTOR in entry.name), None),
        next((entry for entry in files if entry.name.startswith(_DRAFTS)), None),
    )


def passed_over(folder: Path) -> tuple[str, ...]:
    """Return names in the folder that cannot name a model: not UTF-8, empty, or with invisible characters."""
    return tuple(name for name in _names(folder) if not _is_usable(name))


def _entries(folder: Path) -> Sequence[Path]:
    return [folder / name for name in _names(folder) if not name.startswith(".") and _is_usable(name)]


def _is_usable(name: str) -> bool:
    return is_name(name.removesuffix(".gguf"))


def _names(folder: Path) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):  # a NUL in its name
        return ()


def _is_model(entry: Path) -> bool:
    """Return whether a file is a model, or the first part of one."""
    if not _is_called_a_model(entry.name):
        return False
    try:
        found = entry.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _kind(entry, found.st_mtime_ns, found.st_size) is FileKind.MODEL


def _is_called_a_model(name: str) -> bool:
    beside = _PROJECTOR in name or name.startswith(_DRAFTS)
    return name.endswith(".gguf") and not beside and _part(name) in {None, 1}


@lru_cache(maxsize=4096)
def _kind(path: Path, _changed: int, _size: int) -> FileKind:
    """Return the kind of a file by its beginning.

    The folder is looked at every second, so unchanged files are not read again.
    """
    try:
        with path.open("rb") as stream:
            return kind_of_file(stream.read(PEEK))
    except OSError:
        return FileKind.MODEL  # its load says why it cannot be read


def _part(name: str) -> int | None:
    shard = shard_of(name)
    return shard.number if shard else None


def _stem(name: str) -> str:
    shard = shard_of(name)
    return shard.prefix if shard else name.removesuffix(".gguf")
