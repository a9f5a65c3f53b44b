"""The one file of the dashboard that others wrote: fetched from its npm package and compared with ours.

`.venv/bin/python -m tests.support.vendored` compares; `--write` takes the fetched file over.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.support.patience import PATIENCE

PAGE = Path(__file__).parents[2] / "supervisor" / "ui" / "page"
OURS = PAGE / "preact.js"
README = PAGE / "README.md"
PACKAGE = "htm@3.1.1"
_INSIDE = "package/preact/standalone.module.js"


def fetched() -> bytes:
    """The file as published."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--ignore-scripts", PACKAGE]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            found = packed.extractfile(_INSIDE)
            assert found is not None
            return found.read()


def recorded_sum() -> str:
    """The SHA-256 that the page's README names."""
    found = re.search(r"^\| preact\.js \| ([0-9a-f]{64}) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def main() -> int:
    """Compare, or write."""
    content = fetched()
    if "--write" in sys.argv[1:]:
        OURS.write_bytes(content)
    same = OURS.read_bytes() == content
    print("the same" if same else f"{OURS} is not that of {PACKAGE}")  # noqa: T201 - a command
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
