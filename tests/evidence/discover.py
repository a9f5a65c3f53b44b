"""Asks llama.cpp itself which tensors a model of given metadata has: names, shapes.

`llama_model_init_from_user` builds a model from metadata alone, with every tensor the architecture knows; in `no_alloc`
mode nothing is allocated, so that this works for models of any size. It needs the shared libraries beside llama-server.
A fixture that llama.cpp refuses may end the process (an assertion): `tensors_of` therefore runs in one of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path

MAX_DIMS = 4


class _ModelParams(ctypes.Structure):
    _fields_ = (
        ("devices", ctypes.c_void_p),
        ("overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int),
        ("load_mode", ctypes.c_int),
        ("lazy_mode", ctypes.c_int),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
    )


class _GgufInit(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


class _Tensor(ctypes.Structure):
    """The beginning of `ggml_tensor`."""

    _fields_ = (("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * MAX_DIMS))


class _Named(ctypes.Structure):
    """`std::pair<std::string, ggml_tensor *>` of libstdc++."""

    _fields_ = (
        ("text", ctypes.c_char_p),
        ("length", ctypes.c_size_t),
        ("local", ctypes.c_char * 16),
        ("tensor", ctypes.POINTER(_Tensor)),
    )


class _Vector(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("end", ctypes.c_void_p), ("room", ctypes.c_void_p))


TENSOR_MAP = "_Z29llama_internal_get_tensor_mapB5cxx11PK11llama_model"


def read_tensors(libraries: Path, metadata: Path) -> list[tuple[str, list[int]]]:
    """(name, shape) of every tensor, in llama.cpp's order. Raises ValueError where it refuses the metadata."""
    base = ctypes.CDLL(str(libraries / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
    ggml = ctypes.CDLL(str(libraries / "libggml.so"), mode=ctypes.RTLD_GLOBAL)
    llama = ctypes.CDLL(str(libraries / "libllama.so"), mode=ctypes.RTLD_GLOBAL)
    base.gguf_init_from_file.restype = ctypes.c_void_p
    base.gguf_init_from_file.argtypes = (ctypes.c_char_p, _GgufInit)
    llama.llama_model_default_params.restype = _ModelParams
    build = llama.llama_model_init_from_user
    build.restype = ctypes.c_void_p
    build.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, _ModelParams)
    tensor_map = getattr(llama, TENSOR_MAP)
    tensor_map.restype = ctypes.POINTER(_Vector)
    tensor_map.argtypes = (ctypes.c_void_p,)

    ggml.ggml_backend_load_all_from_path(str(libraries).encode())
    params = llama.llama_model_default_params()
    params.no_alloc = True
    params.load_mtp = True
    nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)
    header = base.gguf_init_from_file(str(metadata).encode(), _GgufInit(True, None))
    model = build(header, nothing, None, params)
    if not model:
        raise ValueError("llama.cpp refuses these hyper-parameters")
    vector = tensor_map(model).contents
    count = ((vector.end or 0) - (vector.begin or 0)) // ctypes.sizeof(_Named)
    pairs = (_Named * count).from_address(vector.begin or 0)
    found: dict[str, list[int]] = {}
    for pair in pairs:
        shape = list(pair.tensor.contents.ne)
        while len(shape) > 1 and shape[-1] == 1:
            shape.pop()
        found.setdefault((pair.text or b"")[: pair.length].decode(), shape)
    return list(found.items())


def tensors_of(libraries: Path, metadata: Path, time_limit: float = 120) -> list[tuple[str, list[int]]] | str:
    """`read_tensors` in a process of its own; a text where llama.cpp gives no tensors: its last words."""
    command = [sys.executable, "-m", __spec__.name, str(libraries), str(metadata)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=time_limit, check=False)
    if done.returncode == 0:
        return [(name, shape) for name, shape in json.loads(done.stdout.splitlines()[-1])]
    words = re.findall(r"error loading model: (.*)|(\w+\.\w+):\d+: (GGML_ASSERT.*) failed|what\(\): +(.*)", done.stderr)
    return " ".join(filter(None, words[0])) if words else f"ended with {done.returncode}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", type=Path)
    parser.add_argument("metadata", type=Path)
    arguments = parser.parse_args()
    sys.stdout.write("\n" + json.dumps(read_tensors(arguments.libraries, arguments.metadata)) + "\n")
