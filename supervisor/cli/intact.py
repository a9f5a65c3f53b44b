"""Check that the imported package `supervisor` is ours.

An older, unrelated distribution (the process control system `supervisor`) installs a package of the same name. In one
environment the two overwrite each other's files. The check costs one attribute and one folder listing; it imports
nothing of this package but the errors, because anything else may be half replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import ModuleType

import supervisor
from supervisor.errors import PackageOverwritten

_OURS = "llama-supervisor"


def check_intact(package: ModuleType = supervisor) -> None:
    """Raise PackageOverwritten where the other distribution is installed in this package's folder."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(package.__file__ or "")))
    if getattr(package, "__distribution__", None) == _OURS and not _holds_the_other(os.listdir(folder)):
        return
    raise PackageOverwritten(
        f"The unrelated distribution `supervisor` was installed into {folder} too. Its package has this one's name: "
        f"files of {_OURS} are overwritten already, or go when it is removed. Remove both and install {_OURS} into an "
        f"environment of its own (`uv tool install {_OURS}`, or a new virtual environment)."
    )


def _holds_the_other(names: Iterable[str]) -> bool:
    return any(name.startswith("supervisor-") and name.endswith((".dist-info", ".egg-info")) for name in names)
