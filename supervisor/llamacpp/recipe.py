"""The recipe of a build: the digest of everything that its code outside ggml is made from.

Two builds with the same recipe differ in ggml's libraries alone: llama.cpp gives the rest of the code no setting of a
back end that it reads. So a GPU build can take `llama-server` and llama.cpp's own libraries from a CPU engine, and
compiles only ggml, which is half of the work.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

# `NAME:TYPE=VALUE` of cmake's cache; entries of the type INTERNAL are cmake's own notes.
_ENTRY = re.compile(r"^(?P<name>[^#/\s][^:=\n]*):(?P<type>\w+)=(?P<value>.*)$", re.MULTILINE)
_OF_A_BACKEND = re.compile(r"GGML_VULKAN|Vulkan_\w+|SPIRV-Headers_DIR")


def settings(cache: str) -> list[str]:
    """Return the settings in the text of a CMakeCache.txt, without those that choose or describe a back end."""
    entries = _ENTRY.finditer(cache)
    return [e[0] for e in entries if e["type"] != "INTERNAL" and not _OF_A_BACKEND.fullmatch(e["name"])]


def recipe(source_digest: str | None, source: Path, build: Path) -> str | None:
    """Return the recipe of a configured build folder; None where the source's files are not known.

    It covers the source, the compilers as cmake describes them, and the settings. Raises OSError.
    """
    if source_digest is None:
        return None
    facts = [source_digest, *_compilers(build), *settings(_text(build / "CMakeCache.txt"))]
    text = "\n".join(facts).replace(str(build), "BUILD").replace(str(source), "SOURCE")
    return hashlib.sha256(text.encode()).hexdigest()


def add_shared(programs: Path, engine: Path) -> None:
    """Copy what `programs` lacks from the folder of a whole engine; neither depends on the other afterwards."""
    have = {path.name for path in programs.iterdir()}
    for path in engine.iterdir():
        if path.name not in have:
            shutil.copy2(path, programs / path.name, follow_symlinks=False)


def _compilers(build: Path) -> Iterator[str]:
    for description in sorted(build.glob("CMakeFiles/*/CMake*Compiler.cmake")):
        yield _text(description)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
