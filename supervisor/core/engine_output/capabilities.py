"""Read what one `llama-server` binary can do from what it prints about itself.

Three texts, three parsers; running the binary is `llamacpp/probe`'s business. The texts differ between
builds, so every parser takes what it knows and passes over the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

CPU = "cpu"

_VERSION_NOW = re.compile(r"^version: \S+ \(build (?P<build>\d+), commit (?P<commit>\S+)\)", re.MULTILINE)
_VERSION_BEFORE = re.compile(r"^version: (?P<build>\d+) \((?P<commit>[^)\s]+)\)", re.MULTILINE)
_OPTION_LINE = re.compile(r"^ {0,8}-")
_BEFORE_DESCRIPTION = re.compile(r"(?<![, ]) {2,}")
_FLAG = re.compile(r"(?:^|(?<=[\s,]))--?[A-Za-z][\w.-]*")
_SEVERAL_VALUES = re.compile(r"[A-Z]\w*(?: [A-Z]\w*)+")  # "START END"; "<tensor name pattern>=<buffer type>" is one
_DEVICE_LINE = re.compile(r"^[ \t]++(?P<name>[A-Za-z]++)\d*+:\s", re.MULTILINE)
_LIBRARY = re.compile(r"^(?:lib)?ggml-(?P<name>[a-z]+)(?:-[\w.-]+|\.[\d.]+)?\.(?:so|dylib|dll)(?:\.[\d.]+)?$")

# A back end's name for its devices in --list-devices, and its name in `--backend` and the libraries.
_BACKEND_OF_DEVICE = {"rocm": "hip", "mtl": "metal", "gpuopencl": "opencl"}
_NOT_BACKENDS = frozenset({"base"})


Flags: TypeAlias = Mapping[str, int]
"""Every option of a binary with its dashes (`-c`, `--ctx-size`), and how many values it takes."""


@dataclass(frozen=True)
class Version:
    """The answer to `--version`; a number or commit the binary does not know is None."""

    build: int | None
    commit: str | None
    text: str


@dataclass(frozen=True)
class Capabilities:
    """The abilities of one binary: its build, the options it takes, the back ends it has.

    flags holds every name in `--help`. backends are lower case, sorted: `cpu`, `cuda`, `hip`, `metal`, `rpc`,
    `vulkan`, …
    """

    build: int | None
    commit: str | None
    version_text: str
    flags: Flags
    backends: tuple[str, ...]

    def supports(self, flag: str) -> bool:
        """Return whether `--help` names this option."""
        return flag in self.flags


def parse_version(text: str) -> Version:
    """Read `--version`, in the form of today's builds or of those before `build N, commit C`."""
    found = _VERSION_NOW.search(text) or _VERSION_BEFORE.search(text)
    line = next((line.strip() for line in text.splitlines() if line.startswith("version:")), "")
    if not found:
        return Version(None, None, line)
    commit = found["commit"]
    return Version(int(found["build"]) or None, None if commit == "unknown" else commit, line)


def parse_help(text: str) -> Flags:
    """Return every option name of `--help`, with the number of values that it takes.

    A line that names options starts with one, hardly indented; two spaces that follow no comma begin its
    description: `-c,    --ctx-size N      size`, in older builds `  -c N, --ctx-size N      size`.
    All names of a line take the same values; what stands behind the last one tells which: nothing, `N`, `START END`.
    """
    found: dict[str, int] = {}
    for line in filter(_OPTION_LINE.match, text.splitlines()):
        head = _BEFORE_DESCRIPTION.split(line.strip(), 1)[0]
        found.update(dict.fromkeys(_FLAG.findall(head), _values(_FLAG.split(head)[-1].strip())))
    return found


def _values(shown: str) -> int:
    if _SEVERAL_VALUES.fullmatch(shown):
        return len(shown.split())
    return 1 if shown else 0


def parse_device_backends(text: str) -> frozenset[str]:
    """Return the back ends that own a device in `--list-devices`: `CUDA0: …` is `cuda`, `ROCm0: …` is `hip`."""
    names = (line["name"].lower() for line in _DEVICE_LINE.finditer(text))
    return frozenset(_BACKEND_OF_DEVICE.get(name, name) for name in names)


def library_backends(file_names: Iterable[str]) -> frozenset[str]:
    """Return the back ends whose `libggml-NAME` library is among these files."""
    libraries = (_LIBRARY.match(name) for name in file_names)
    return frozenset(found["name"] for found in libraries if found) - _NOT_BACKENDS


def assemble(version: Version, flags: Flags, backends: frozenset[str]) -> Capabilities:
    """Put the parts together; every build of llama.cpp can compute on the CPU."""
    return Capabilities(version.build, version.commit, version.text, flags, tuple(sorted(backends | {CPU})))
