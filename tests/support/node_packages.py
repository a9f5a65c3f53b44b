"""Packages for Node that tests use: installed once, as their lock says, beside the tests' own environment."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.lacking import lacking
from tests.support.patience import PATIENCE

_SOURCES = Path(__file__).parent / "node"
_FILES = ("package.json", "package-lock.json", "battery.mjs", "ollama.mjs", "retries.mjs")
_OLDEST = 20  # Node's version that the SDKs take


def node_results(url: str) -> dict[str, Any]:
    """What `battery.mjs` gets from a server, by the names of the calls. Skips where there is no Node."""
    return node_told("battery.mjs", url)


def node_told(name: str, *arguments: str) -> dict[str, Any]:
    """What a script prints. Skips where there is no Node."""
    script = node_folder() / name
    done = subprocess.run(["node", script, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def node_folder() -> Path:
    """The folder with the packages and the script. Skips where there is no Node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("the packages for Node need node and npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < _OLDEST:
        pytest.skip(f"the packages for Node need Node {_OLDEST}, not {version}")
    digest = hashlib.sha256(b"".join((_SOURCES / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    folder = Path(sys.prefix) / f"node-{digest}"
    return folder if folder.exists() else _install(folder)


def _install(folder: Path) -> Path:
    """Install into a folder of its own, then give it its name: others may do the same meanwhile."""
    making = Path(tempfile.mkdtemp(prefix="node-", dir=folder.parent))
    for name in _FILES:
        shutil.copy(_SOURCES / name, making)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=making, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(making)
        lacking(f"npm cannot install the packages for Node: {done.stderr[-500:]}")
    try:
        os.rename(making, folder)
    except OSError:
        shutil.rmtree(making)
    return folder
