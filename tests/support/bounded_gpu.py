"""GPUs whose memory really runs out: the software driver of Vulkan behind an account of bytes.

What is real: llama.cpp's Vulkan back end, its buffers, its errors and what it does about them, and the loader. What
stands in: the driver's bound. Mesa's software driver names a heap of 2 GiB and never refuses anything. The small
library `bounded_gpu.c` in front of it refuses what exceeds the account, with the result that a driver gives
(VK_ERROR_OUT_OF_DEVICE_MEMORY). The account counts over all processes and forgets those that have ended.

    gpus = make_gpus(tmp_path, vulkan_engine, 2, mib=128)
    with running_daemon(home, vulkan_engine.path, settings, env=gpus.environment) as daemon, gpus[0].neighbour(mib=100):

Like most drivers it says that everything is free, unless `tells` is set (then it has VK_EXT_memory_budget).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.lacking import lacking
from tests.support.patience import PATIENCE
from tests.support.vulkan import VulkanEngine

MIB = 1 << 20
_SOURCE = Path(__file__).with_suffix(".c")
_LIMIT, _AMBUSH_AT, _AMBUSH, _TELLS, _SUBMIT, _STUCK, _REFUSED, _HELD = 0, 8, 16, 24, 28, 32, 36, 40
_ROWS = 64
_SIZE = _HELD + 8 * _ROWS
OUT_OF_DEVICE_MEMORY, DEVICE_LOST = -2, -4
"""What a driver may answer to work that is submitted."""


class BoundedGpu:
    """One device: what it has, who holds it, and what its driver is told to do.

    Args:
        file: its account; the processes that use the device have it mapped.
        name: llama.cpp's.
    """

    def __init__(self, file: Path, name: str, mib: int) -> None:
        self.name = name
        self._path = file
        file.write_bytes(bytes(_SIZE))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _SIZE)
        self.limit(mib)

    def limit(self, mib: int) -> None:
        """Give the device so much memory; what is held stays held."""
        self._limit = mib * MIB
        self._put("Q", _LIMIT, self._limit)

    def tells(self, whether: bool = True) -> None:
        """Let the driver tell what is free."""
        self._put("i", _TELLS, whether)

    def ambush(self, at_mib: int, mib: int) -> None:
        """As soon as so much is held, let somebody else hold so much more, before anybody can look."""
        self._put("Q", _AMBUSH_AT, at_mib * MIB)
        self._put("Q", _AMBUSH, mib * MIB)

    def answer_submissions(self, result: int) -> None:
        """Let the driver refuse all work with this result; 0: do it."""
        self._put("i", _SUBMIT, result)

    def get_stuck(self, whether: bool = True) -> None:
        """Let no allocation return."""
        self._put("i", _STUCK, whether)

    @property
    def refused(self) -> int:
        """How many allocations the driver has refused."""
        return int(struct.unpack_from("i", self._shared, _REFUSED)[0])

    @property
    def held(self) -> int:
        """Bytes held by living processes."""
        with self._path.open("r+b") as file:
            return sum(_row(self._shared, index) for index in range(_ROWS) if not _lock(file.fileno(), index))

    def neighbour(self, mib: int) -> AbstractContextManager[None]:
        """A process that holds so much of the device, and that no daemon knows."""
        return self._holder(mib * MIB)

    def filled(self) -> AbstractContextManager[None]:
        """A process that holds all that is left now."""
        return self._holder(self._limit - self.held)

    @contextlib.contextmanager
    def _holder(self, count: int) -> Iterator[None]:
        argv = [sys.executable, "-m", "tests.support.bounded_gpu", str(self._path), str(count)]
        root = Path(__file__).parents[2]
        with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            try:
                yield
            finally:
                process.stdin.close()

    def reset(self, mib: int) -> None:
        """The device as it was made, for the next test."""
        self._shared[:_HELD] = bytes(_HELD)
        self.limit(mib)

    def _put(self, kind: str, at: int, value: int) -> None:
        struct.pack_into(kind, self._shared, at, value)


class BoundedGpus:
    """Devices `Vulkan0`, `Vulkan1`, … and the variables by which an engine sees them alone.

    The Vulkan loader lists drivers in the reverse of the order in which they are named.
    """

    def __init__(self, folder: Path, library: Path, count: int, mib: int) -> None:
        self._mib = mib
        self._gpus = [BoundedGpu(folder / f"gpu{number}.heap", f"Vulkan{number}", mib) for number in range(count)]
        manifests: list[str] = []
        for number in range(count):
            shutil.copy(library, folder / f"gpu{number}.so")
            manifest = folder / f"gpu{number}.json"
            driver = {"library_path": str(folder / f"gpu{number}.so"), "api_version": "1.3.230"}
            manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}), encoding="utf-8")
            manifests.append(str(manifest))
        self.environment = {
            "VK_DRIVER_FILES": os.pathsep.join(reversed(manifests)),
            "VK_LOADER_LAYERS_DISABLE": "~implicit~",  # Mesa's device selection would show only one of equal devices
            "GGML_VK_VISIBLE_DEVICES": ",".join(map(str, range(count))),
        }

    def __getitem__(self, number: int) -> BoundedGpu:
        return self._gpus[number]

    def reset(self) -> None:
        """All devices as they were made."""
        for gpu in self._gpus:
            gpu.reset(self._mib)


def make_gpus(folder: Path, engine: VulkanEngine, count: int, mib: int) -> BoundedGpus:
    """So many devices of so many MiB each, made in this folder; without a C compiler the test is skipped."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        lacking("no C compiler for the stand-in of a driver with a bound")
    driver = json.loads(engine.driver.read_text(encoding="utf-8"))["ICD"]["library_path"]
    library = folder / "bounded_gpu.so"
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f'-DDRIVER="{driver}"']
    subprocess.run([compiler, *options, "-o", library, _SOURCE, "-ldl", "-lpthread"], check=True, timeout=PATIENCE)
    return BoundedGpus(folder, library, count, mib)


def _row(shared: mmap.mmap, index: int) -> int:
    return int(struct.unpack_from("Q", shared, _HELD + 8 * index)[0])


def _lock(descriptor: int, index: int) -> bool:
    """Take the row if no living process has it."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _HELD + 8 * index)
    except OSError:
        return False
    return True


def _hold(path: Path, count: int) -> None:
    """Hold so many bytes until the standard input ends."""
    with path.open("r+b") as file:
        index = next(index for index in range(_ROWS) if _lock(file.fileno(), index))
        with mmap.mmap(file.fileno(), _SIZE) as shared:
            struct.pack_into("Q", shared, _HELD + 8 * index, count)
            os.write(1, b"held\n")
            sys.stdin.read()


if __name__ == "__main__":
    _hold(Path(sys.argv[1]), int(sys.argv[2]))
