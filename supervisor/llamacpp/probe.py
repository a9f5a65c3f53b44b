"""Ask a `llama-server` binary what it is, once per binary.

The answers are cached by the identity of the file and of the libraries beside it: newer builds keep nearly
all code in libraries, and the program itself is a small launcher.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO

from supervisor.core.engine_output.capabilities import (
    Capabilities,
    Version,
    assemble,
    library_backends,
    parse_device_backends,
    parse_help,
    parse_version,
)
from supervisor.core.environment import for_engines
from supervisor.core.launch import with_libraries
from supervisor.errors import EngineUnusable
from supervisor.llamacpp.jsonfile import number, read_object, text, write_object
from supervisor.llamacpp.libraries import runtime_libraries
from supervisor.llamacpp.store import manifest_of
from supervisor.system.owned import own_folder
from supervisor.system.processes import signal_session

_TIMEOUT_SECONDS = 60  # the first start of a GPU build loads gigabytes of libraries from disk
_MOST_BYTES = 4 << 20  # of what it prints: the help has some 100 KB
_CACHE_ENTRIES = 32
_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")


def capabilities(binary: Path, cache_file: Path) -> Capabilities:
    """Return the capabilities of `binary`; it is run only if the cache does not know this very file.

    Raises EngineUnusable where it is no program, does not start here, or is no llama.cpp.
    """
    key = str(binary.resolve())
    identity = _identity(binary)
    cache = read_object(cache_file)
    found = _from_cache(cache.get(key), identity)
    if found is None:
        found = _ask(binary)
        _remember(cache_file, key, identity, found)
    manifest = manifest_of(Path(key))
    if manifest and found.build is None:
        return replace(found, build=manifest.build, commit=found.commit or manifest.commit)
    return found


def _identity(binary: Path) -> str:
    try:
        real = binary.resolve(strict=True)
        own = real.stat()
        beside = [e.stat().st_mtime_ns for e in os.scandir(real.parent) if _is_library(e.name) and e.is_file()]
    except OSError as error:
        raise EngineUnusable(f"{binary} cannot be read: {error.strerror}") from error
    return f"{own.st_size}:{own.st_mtime_ns}:{own.st_ino}:{len(beside)}:{max(beside, default=0)}"


def _is_library(name: str) -> bool:
    return name.endswith(_LIBRARY_SUFFIXES) or ".so." in name


def _ask(binary: Path) -> Capabilities:
    if not binary.is_file() or not os.access(binary, os.X_OK):
        raise EngineUnusable(f"{binary} is not an executable file")
    version = _version(binary)
    flags = parse_help(_run(binary, "--help").stdout)
    if "--model" not in flags:
        raise EngineUnusable(f"{binary} is not a llama-server: its --help names no --model")
    devices = _run(binary, "--list-devices")
    backends = library_backends(os.listdir(binary.resolve().parent))
    if devices.returncode == 0:  # builds before --list-devices answer with an error: then the libraries alone tell
        backends |= parse_device_backends(devices.stdout)
    return assemble(version, flags, backends)


def _version(binary: Path) -> Version:
    answer = _run(binary, "--version")
    both = f"{answer.stdout}\n{answer.stderr}"
    version = parse_version(both)
    if answer.returncode == 0 and version.text:
        return version
    lines = tuple(line for line in both.splitlines() if line.strip())[-8:]
    last = lines[-1] if lines else "it printed nothing"
    raise EngineUnusable(f"{binary} --version failed (exit status {answer.returncode}): {last}", log_lines=lines)


def _run(binary: Path, option: str) -> subprocess.CompletedProcess[str]:
    """Return what it prints. All that it has started ends with it, at the time limit too."""
    try:
        process = subprocess.Popen(
            [str(binary), option],
            stdin=subprocess.DEVNULL,
            env=with_libraries(for_engines(os.environ), runtime_libraries(binary, os.environ)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineUnusable(f"{binary} does not start on this machine: {error.strerror}") from error
    late = threading.Event()
    timer = threading.Timer(_TIMEOUT_SECONDS, _end, (process.pid, late))
    timer.start()
    try:
        with process, ThreadPoolExecutor(1) as beside:
            errors = beside.submit(_read, process.stderr, process.pid)
            said = _read(process.stdout, process.pid)
            told = errors.result()
    finally:
        timer.cancel()
        signal_session(process.pid, signal.SIGKILL)
    if late.is_set():
        raise EngineUnusable(f"{binary} {option} gave no answer within {_TIMEOUT_SECONDS} s")
    if max(len(said), len(told)) > _MOST_BYTES:
        raise EngineUnusable(f"{binary} {option} prints more than {_MOST_BYTES >> 20} MiB; it is no llama-server")
    texts = (one.decode("utf-8", "replace") for one in (said, told))
    return subprocess.CompletedProcess(process.args, process.returncode, *texts)


def _read(pipe: IO[bytes] | None, session: int) -> bytes:
    """Return what comes, and a byte more than there may be where more comes, which ends the program."""
    assert pipe is not None  # it was asked for
    found = pipe.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        signal_session(session, signal.SIGKILL)
    return found


def _end(session: int, late: threading.Event) -> None:
    late.set()
    signal_session(session, signal.SIGKILL)


def _from_cache(entry: object, identity: str) -> Capabilities | None:
    if not isinstance(entry, dict) or entry.get("identity") != identity:
        return None
    flags, backends = entry.get("flags"), entry.get("backends")
    if not isinstance(flags, dict) or not isinstance(backends, list):
        return None
    return Capabilities(
        build=number(entry.get("build")),
        commit=text(entry.get("commit")),
        version_text=text(entry.get("version_text")) or "",
        flags={name: number(values) or 0 for name, values in flags.items()},
        backends=tuple(map(str, backends)),
    )


def _remember(cache_file: Path, key: str, identity: str, found: Capabilities) -> None:
    entry = {**asdict(found), "identity": identity}
    cache = {other: value for other, value in read_object(cache_file).items() if other != key}
    kept = dict(list(cache.items())[-(_CACHE_ENTRIES - 1) :])
    with contextlib.suppress(OSError):  # then it is asked again the next time
        own_folder(cache_file.parent)
        write_object(cache_file, {**kept, key: entry})
