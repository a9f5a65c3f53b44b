"""Removing whole folders of ours, and never what somebody has mounted in one: that lies elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

from supervisor.errors import FolderRefused


def mount_points() -> frozenset[Path]:
    """Return all places at which something is mounted, a disk or another folder."""
    return frozenset(Path(one.mountpoint) for one in psutil.disk_partitions(all=True))


def mounted_in(path: Path, places: frozenset[Path]) -> Path | None:
    """Return one of these places that is `path` or below it; None: there is none."""
    real = path.resolve()
    return next((place for place in places if place == real or real in place.parents), None)


def check_unmounted(folder: Path) -> None:
    """Raise FolderRefused where something is mounted in a folder that is to be removed."""
    place = mounted_in(folder, mount_points())
    if place is not None:
        raise FolderRefused(f"{folder} is not removed: something is mounted at {place}. Unmount it and try again.")


def remove_tree(folder: Path) -> None:
    """Remove a folder and all below it. Raises FolderRefused where something is mounted there, and OSError."""
    check_unmounted(folder)
    shutil.rmtree(folder)
