"""Find the libraries that a GPU build of llama.cpp needs and that neither it nor the system brings along."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from supervisor.core.engine_output.capabilities import library_backends
from supervisor.core.launch import LibraryPath, has_runtime, library_path

_HEAD = 16 << 20  # the names of needed libraries stand near the beginning of a program
_NEEDED = {b"libcudart.so": "cuda", b"libcublas.so": "cuda", b"libamdhip64.so": "hip"}
_TOOLKITS = {
    "cuda": (("CUDA_HOME", "CUDA_PATH"), "usr/local", "cuda", ("lib64", "lib")),
    "hip": (("ROCM_PATH",), "opt", "rocm", ("lib",)),
}


def runtime_libraries(
    binary: Path,
    env: Mapping[str, str],
    backends: Iterable[str] = (),
    sites: Sequence[Path] | None = None,
    root: Path = Path("/"),
) -> LibraryPath:
    """Return the folders that a CUDA or HIP binary should find its runtime in; none for all others.

    Args:
        binary: a `llama-server`.
        env: where `CUDA_HOME` and the like are looked up.
        backends: what is known of it; its neighbours and its own head are looked at as well.
        sites: folders of Python packages, in which pip puts `nvidia/*/lib`; None: this interpreter's.
        root: of the file system in which toolkits are looked for.
    """
    folder = binary.resolve().parent
    wanted = ({*backends} | _backends_of(binary)) & _TOOLKITS.keys()
    places = sites if sites is not None else [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    found = [
        str(place)
        for backend in sorted(wanted)
        for place in (folder, *_packaged(places), *_toolkits(backend, env, root))
        if has_runtime(backend, _names(place))
    ]
    return library_path(sys.platform, str(folder), found)


def _backends_of(binary: Path) -> frozenset[str]:
    real = binary.resolve()
    beside = library_backends((*_names(real.parent), *_names(real.parent.parent / "lib")))
    return beside | _linked(real)


def _linked(binary: Path) -> frozenset[str]:
    """Return the back ends whose runtime the program itself is linked to, as static builds are."""
    try:
        with binary.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return frozenset()
    return frozenset(backend for name, backend in _NEEDED.items() if name in head)


def _packaged(sites: Sequence[Path]) -> Iterator[Path]:
    for site in sites:
        yield from sorted((*site.glob("nvidia/*/lib"), *site.glob("nvidia/*/bin")))


def _toolkits(backend: str, env: Mapping[str, str], root: Path) -> Iterator[Path]:
    """Yield the toolkits that the environment names, then the usual one, then others, the newest first."""
    variables, parent, name, libraries = _TOOLKITS[backend]
    usual = root / parent / name
    others = sorted((root / parent).glob(f"{name}-*"), reverse=True)
    for home in (*(Path(env[variable]) for variable in variables if env.get(variable)), usual, *others):
        yield from (home / library for library in libraries)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
