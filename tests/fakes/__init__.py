"""Programs that misbehave on purpose, for what the real ones cannot be made to do."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_FAKE = Path(__file__).with_name("fake_llama_server.py")


def install_fake(folder: Path, *knobs: str) -> str:
    """Write an executable `llama-server` that runs the fake with these knobs; returns its path."""
    program = folder / "llama-server"
    words = [sys.executable, "-I", "-S", str(_FAKE), *knobs]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)
