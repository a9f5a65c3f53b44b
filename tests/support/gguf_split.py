"""llama.cpp's own `llama-gguf-split`: one file of its source, compiled against the engine's shared libraries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.lacking import lacking
from tests.support.llama_source import llama_source

_SOURCE = "tools/gguf-split/gguf-split.cpp"
_INCLUDES = ("common", "include", "ggml/include")
_LIBRARIES = ("llama-common", "llama", "ggml", "ggml-base")


class GgufSplit:
    """The program at `binary`."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def __call__(self, source: Path, folder: Path, stem: str, tensors: int) -> list[Path]:
        """Write shards of so many tensors each into `folder`; their paths in order."""
        options = ["--split", "--split-max-tensors", str(tensors)]
        done = subprocess.run([self._binary, *options, source, folder / stem], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(folder.glob(f"{stem}-*-of-*.gguf"))


def build_gguf_split(engine: Path, folder: Path) -> GgufSplit:
    """Compile it into `folder`, about two seconds of work, against the libraries that lie beside the engine's binary.

    A skip, and under CI=true a failure, where compiler, source or libraries are lacking, or do not go together.
    """
    compiler = shutil.which("c++")
    if compiler is None:
        lacking("no llama-gguf-split: no C++ compiler (c++) to make it with")
    libraries = engine.resolve().parent
    source, binary = llama_source(), folder / "llama-gguf-split"
    argv = [compiler, "-std=c++17", *(f"-I{source / name}" for name in _INCLUDES), str(source / _SOURCE)]
    argv += ["-o", str(binary), f"-L{libraries}", f"-Wl,-rpath,{libraries}", *(f"-l{name}" for name in _LIBRARIES)]
    made = subprocess.run(argv, capture_output=True, text=True)
    tried = subprocess.run([binary, "--version"], capture_output=True, text=True) if made.returncode == 0 else made
    if tried.returncode != 0:
        lacking(f"no llama-gguf-split: {source / _SOURCE} with the libraries in {libraries}: {tried.stderr[-2000:]}")
    return GgufSplit(binary)
