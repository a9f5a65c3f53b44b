"""Mutates GGUF headers and reads them: only GgufError may come out, soon, and with little memory.

    python -m tests.fuzz.headers [--count 1000000] [--first 0] [--processes 2]

Every mutation has a number from which it is made anew: `--first N --count 1` repeats one. Half of the mutations know
the structure (lengths, counts, types, offsets), half don't. Prints figures as JSON; the exit status is 1 if something
other than GgufError came out. Times are CPU time of the slowest mutation (the best of three readings, so that what
else the machine does does not count); memory is measured on every mutation by the process's high-water mark, and to
the byte on every 101st.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from supervisor.core.gguf import read_header
from supervisor.errors import GgufError
from tests.fuzz.blueprints import Blueprint, large, small

LIMIT_MS = 50
LIMIT_MB = 50

_SMALL, _LARGE = small(), large()
_LARGE_EVERY = 15
_TRACED_EVERY = 101
_SUSPICIOUS_MS = 10
_TELLING = (
    *(0, 1, 2, 3, 7, 8, 9, 13, 31, 63, 64, 99, 255, 4096, 4097, 65535, 65536, 2**20, 2**24, 2**30, 2**31 - 1),
    *(2**31, 2**32 - 1, 2**32, 2**33, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1),
)


@dataclass
class Figures:
    """What a run found."""

    count: int = 0
    readable: int = 0
    refused: int = 0
    slowest_ms: float = 0.0
    slowest: int = 0
    traced: int = 0
    most_traced_mb: float = 0.0
    process_grew_mb: float = 0.0

    def add(self, other: Figures) -> None:
        self.count += other.count
        self.readable += other.readable
        self.refused += other.refused
        self.traced += other.traced
        if other.slowest_ms > self.slowest_ms:
            self.slowest_ms, self.slowest = other.slowest_ms, other.slowest
        self.most_traced_mb = max(self.most_traced_mb, other.most_traced_mb)
        self.process_grew_mb = max(self.process_grew_mb, other.process_grew_mb)


def mutation(number: int) -> tuple[bytes, int | None]:
    """A header and the size that the reader is told."""
    rng = random.Random(number)
    blueprint = rng.choice(_LARGE if rng.randrange(_LARGE_EVERY) == 0 else _SMALL)
    data = bytearray(blueprint.data)
    kinds = _KNOWING if number % 2 else _IGNORANT
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        rng.choice(kinds)(rng, data, blueprint)
    size = rng.choice((len(data), len(data), None, rng.randrange(len(data) + 100), 2**40))
    return bytes(data), size


def _number(rng: random.Random, data: bytearray, blueprint: Blueprint) -> None:
    place, width = rng.choice(blueprint.numbers)
    left = len(data) - place - width
    value = rng.choice((rng.choice(_TELLING), left + rng.randrange(-2, 3), left // 8 + 1, rng.randrange(14)))
    _write(data, place, width, value, blueprint.order)


def _nudge(rng: random.Random, data: bytearray, blueprint: Blueprint) -> None:
    place, width = rng.choice(blueprint.numbers)
    before = int.from_bytes(data[place : place + width], "little" if blueprint.order == "<" else "big")
    _write(data, place, width, before + rng.choice((-32, -8, -2, -1, 1, 2, 8, 32)), blueprint.order)


def _exchange(rng: random.Random, data: bytearray, blueprint: Blueprint) -> None:
    """Copy one number over another."""
    (source, width), (place, room) = rng.choice(blueprint.numbers), rng.choice(blueprint.numbers)
    value = int.from_bytes(data[source : source + width], "little" if blueprint.order == "<" else "big")
    _write(data, place, room, value, blueprint.order)


def _write(data: bytearray, place: int, width: int, value: int, order: str) -> None:
    if place + width <= len(data):
        form = {4: "I", 8: "Q"}[width]
        data[place : place + width] = struct.pack(order + form, value % (1 << 8 * width))


def _flip(rng: random.Random, data: bytearray, _: Blueprint) -> None:
    for _change in range(rng.randrange(1, 9)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)


def _cut(rng: random.Random, data: bytearray, _: Blueprint) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _extend(rng: random.Random, data: bytearray, _: Blueprint) -> None:
    length = rng.choice((1, 7, 64, 1000, 1000, rng.randrange(1 << 20)))
    data += rng.choice((bytes(length), rng.randbytes(length), b"\xff" * length))


def _remove(rng: random.Random, data: bytearray, _: Blueprint) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.randrange(1, 40)]


def _repeat(rng: random.Random, data: bytearray, _: Blueprint) -> None:
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randrange(1, 200)]
    place = rng.randrange(len(data) + 1)
    data[place:place] = piece * rng.choice((1, 1, 2, 50))


def _noise(rng: random.Random, data: bytearray, _: Blueprint) -> None:
    """Noise behind a good beginning."""
    keep = rng.choice((0, 4, 8, 16, 24, rng.randrange(len(data) + 1)))
    data[keep:] = rng.randbytes(rng.randrange(300))


def _graft(rng: random.Random, data: bytearray, _: Blueprint) -> None:
    """The rest of another header behind the beginning of this one."""
    other = rng.choice(_SMALL).data
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other)) :]


_KNOWING: tuple[Callable[[random.Random, bytearray, Blueprint], None], ...] = (_number, _number, _nudge, _exchange)
_IGNORANT: tuple[Callable[[random.Random, bytearray, Blueprint], None], ...] = (
    *(_flip, _flip, _cut, _extend, _remove, _repeat, _noise, _graft),
)


def run(first: int, count: int) -> Figures:
    """Read so many mutations; raises whatever is not a GgufError, with the mutation's number."""
    figures = Figures()
    read(0)
    before = _high_water()
    for number in range(first, first + count):
        begun = time.thread_time()
        figures.readable += read(number)
        spent = (time.thread_time() - begun) * 1000
        if spent > max(figures.slowest_ms, _SUSPICIOUS_MS):
            spent = min(_milliseconds(number) for _ in range(3))
        if spent > figures.slowest_ms:
            figures.slowest_ms, figures.slowest = round(spent, 2), number
        if number % _TRACED_EVERY == 0:
            figures.traced += 1
            figures.most_traced_mb = max(figures.most_traced_mb, _traced(number))
    figures.count = count
    figures.refused = count - figures.readable
    figures.process_grew_mb = round((_high_water() - before) / 1e6, 1)
    return figures


def read(number: int) -> bool:
    """Whether the mutation was still a header; raises if it was worse than none."""
    data, size = mutation(number)
    return _readable(data, size, number)


def _readable(data: bytes, size: int | None, number: int) -> bool:
    try:
        read_header(io.BytesIO(data), size)
    except GgufError as error:
        if size is not None and error.offset > max(size, len(data)):  # else nobody knew
            raise AssertionError(f"mutation {number}: an error at byte {error.offset} of {len(data)}") from error
        return False
    except BaseException as error:
        error.add_note(f"mutation {number}: python -m tests.fuzz.headers --first {number} --count 1")
        raise
    return True


def _milliseconds(number: int) -> float:
    data, size = mutation(number)
    begun = time.thread_time()
    _readable(data, size, number)
    return (time.thread_time() - begun) * 1000


def _traced(number: int) -> float:
    """The most memory that reading this one holds, in MB."""
    data, size = mutation(number)
    tracemalloc.start()
    try:
        _readable(data, size, number)
        return round(tracemalloc.get_traced_memory()[1] / 1e6, 2)
    finally:
        tracemalloc.stop()


def _high_water() -> int:
    """The most memory that this process ever held, in bytes; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def run_all(first: int, count: int, processes: int) -> Figures:
    """As `run`, in several processes."""
    share = 10_000
    starts = range(first, first + count, share)
    figures = Figures()
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(run, starts, [min(share, first + count - start) for start in starts]):
            figures.add(found)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    figures = run_all(options.first, options.count, options.processes)
    print(json.dumps(asdict(figures), indent=1))  # noqa: T201 - a command of its own
    return 0


if __name__ == "__main__":
    sys.exit(main())
