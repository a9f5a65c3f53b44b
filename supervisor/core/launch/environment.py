"""The environment of an engine: variables and library folders, for the child alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_SETTING = re.compile(r"LLAMA_(?:ARG|SERVER)_|LLAMA_API_KEY$")
_VARIABLES = {"darwin": "DYLD_LIBRARY_PATH", "win32": "PATH"}
# Back ends whose libraries come from a toolkit of their own, and how its files begin
RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "cuda": ("libcudart", "libcublas", "libnccl", "cudart", "cublas"),
    "hip": ("libamdhip64", "libhipblas", "librocblas", "amdhip64", "hipblas", "rocblas"),
}


@dataclass(frozen=True)
class LibraryPath:
    """The folders where the child's loader looks first, and the variable that names them."""

    folders: tuple[str, ...] = ()
    variable: str = "LD_LIBRARY_PATH"
    separator: str = ":"


def library_path(platform: str, binary_folder: str, folders: Sequence[str]) -> LibraryPath:
    """Return the library path of a binary that needs these folders.

    Args:
        platform: `sys.platform`.
        binary_folder: where the binary lies: its own libraries come first.
        folders: where the back end's runtime was found, the best first; none: nothing is needed.
    """
    wanted = tuple(dict.fromkeys((binary_folder, *folders))) if folders else ()
    return LibraryPath(wanted, _VARIABLES.get(platform, "LD_LIBRARY_PATH"), ";" if platform == "win32" else ":")


def has_runtime(backend: str, files: Collection[str]) -> bool:
    """Return whether a folder with these files holds part of the back end's runtime."""
    return any(name.startswith(RUNTIMES[backend]) for name in files)


def with_libraries(env: Mapping[str, str], path: LibraryPath) -> dict[str, str]:
    """Return the environment with the folders put before those that it names already."""
    if not path.folders:
        return dict(env)
    before = [folder for folder in env.get(path.variable, "").split(path.separator) if folder]
    return {**env, path.variable: path.separator.join(dict.fromkeys((*path.folders, *before)))}


def is_setting(name: str) -> bool:
    """Return whether llama-server reads an option or another setting from this variable."""
    return _SETTING.match(name) is not None


def without_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without llama.cpp's own settings.

    llama-server reads every option from `LLAMA_ARG_*` too; one left in a shell's profile would silently change every
    engine, and a key there would lock us out.
    """
    return {name: value for name, value in env.items() if not is_setting(name)}
