"""The hash of an engine: of the program and llama.cpp's libraries, which hold nearly all of its code.

A build number is not enough: builds from a checkout say 0, and one number is built with many options.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from supervisor.errors import EngineUnusable
from supervisor.llamacpp.jsonfile import read_object, text, write_object
from supervisor.system.owned import own_folder

_LIBRARY = re.compile(r"(?:lib)?(?:ggml|llama|mtmd)[\w.-]*\.(?:so|dylib|dll)(?:\.[\d.]+)?")
_ENTRIES = 32


def engine_digest(binary: Path, cache_file: Path) -> str:
    """Hash the program and its libraries. Files are read only if the cache does not know them as they are.

    Blocks while it reads: about a second per gigabyte, once. Raises EngineUnusable where a file cannot be read.
    """
    try:
        files = _files(binary)
        identity = _identity(files)
        cache = read_object(cache_file)
        entry = cache.get(str(binary))
        known = text(entry.get("digest")) if isinstance(entry, dict) and entry.get("identity") == identity else None
        if known is not None:
            return known
        digest = _digest(files)
    except OSError as error:
        raise EngineUnusable(f"{error.filename or binary} cannot be read: {error.strerror}") from error
    others = {name: other for name, other in cache.items() if name != str(binary)}
    kept = dict(list(others.items())[-(_ENTRIES - 1) :])
    with contextlib.suppress(OSError):  # then it is read again the next time
        own_folder(cache_file.parent)
        write_object(cache_file, {**kept, str(binary): {"identity": identity, "digest": digest}})
    return digest


def _files(binary: Path) -> list[Path]:
    """Yield the program and its libraries, every file once, without links."""
    real = binary.resolve(strict=True)
    folders = (real.parent, real.parent.parent / "lib", real.parent.parent / "lib64")
    found = {path.resolve() for folder in folders for path in _libraries(folder)}
    return [real, *sorted(found - {real}, key=lambda path: path.name)]


def _libraries(folder: Path) -> Iterator[Path]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = folder / name
        if _LIBRARY.fullmatch(name) and path.is_file():
            yield path


def _identity(files: list[Path]) -> str:
    facts = [(path.name, (found := path.stat()).st_size, found.st_mtime_ns, found.st_ino) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _digest(files: list[Path]) -> str:
    """Hash the files' contents and the names of libraries; the program may have any name."""
    whole = hashlib.sha256()
    for number, path in enumerate(files):
        with path.open("rb") as stream:
            one = hashlib.file_digest(stream, "sha256").hexdigest()
        whole.update(f"{path.name if number else ''}:{one}\n".encode())
    return whole.hexdigest()
