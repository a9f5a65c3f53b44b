"""Assign layers to devices, as numbers alone.

llama.cpp gives whole layers, in their order, to devices in theirs. So a prefix of the layers is all there is to know of
a partial answer, and a longer prefix is always at least as good: what can follow the shorter one can follow the longer.
That makes `reach` exact in one pass, and `fewest` exact over all subsets of the devices in D² steps.

`layers` are prefix sums of bytes: item i is what the layers before i take, the last item what all take. `Room` is what
a device has for layers once it holds its compute buffer and the like: less on the first device that gets layers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

_RATIO_STEPS = 512


class Room(NamedTuple):
    """Bytes for layers, by device: on the first that gets any, and on one after it. Negative: no room even for none."""

    first: Sequence[int]
    others: Sequence[int]

    def at(self, device: int, is_first: bool) -> int:
        """Return the bytes on a device, by its place in the lists."""
        return self.first[device] if is_first else self.others[device]

    def more(self, extra: int) -> Room:
        """Return the room with so many bytes more on every device."""
        return Room([room + extra for room in self.first], [room + extra for room in self.others])


def reach(layers: Sequence[int], room: Room, start: int) -> tuple[int, list[int]]:
    """Return where the layers from `start` end if every device in turn takes what it can, and how many each takes."""
    at = start
    counts = []
    for device in range(len(room.first)):
        to = _extend(layers, at, room.at(device, at == start))
        counts.append(to - at)
        at = to
    return at, counts


def _extend(layers: Sequence[int], at: int, room: int) -> int:
    """Return the first layer after `at` for which there is no room beside those before it."""
    return bisect_right(layers, layers[at] + room) - 1 if room >= 0 else at


def fewest(layers: Sequence[int], room: Room, start: int, least: int = 1) -> tuple[int, ...] | None:
    """Return the smallest set of devices, of `least` or more, that holds all layers; None if all devices do not.

    Among sets of one size the one that got farthest with the earliest devices.
    """
    end = len(layers) - 1
    best: list[tuple[int, tuple[int, ...]]] = [(start, ())]  # by how many devices: the longest prefix, and with which
    for device in range(len(room.first)):
        best.append((start, ()))
        for count in range(device + 1, 0, -1):
            at, chosen = best[count - 1]
            if len(chosen) != count - 1:
                continue
            to = _extend(layers, at, room.at(device, not chosen))
            if to > best[count][0]:
                best[count] = to, (*chosen, device)
    return next((chosen for count, (to, chosen) in enumerate(best) if to == end and count >= least), None)


def most(layers: Sequence[int], room: Room, start: int, count: int) -> int:
    """Return a lower bound of the bytes that find no place on any `count` devices."""
    best = [start] * (count + 1)
    for device in range(len(room.first)):
        for used in range(count, 0, -1):
            at = best[used - 1]
            best[used] = max(best[used], at, _extend(layers, at, room.at(device, at == start)))
    return layers[-1] - layers[best[count]]


def balance(layers: Sequence[int], room: Room, free: Sequence[int], start: int) -> list[int]:
    """Return layers per device so that all are filled to about the same share of what is free on them.

    The smallest share at which all layers find a place, in steps of 1/512. The layers must fit at all.
    """
    low, high = 0, _RATIO_STEPS  # `high` fits
    while high - low > 1:
        middle = (low + high) // 2
        if reach(layers, _filled(room, free, middle), start)[0] == len(layers) - 1:
            high = middle
        else:
            low = middle
    return reach(layers, _filled(room, free, high), start)[1]


def _filled(room: Room, free: Sequence[int], ratio: int) -> Room:
    """Return the room when only so many 512ths of each device may be used."""
    spare = [max(0, size - size * ratio // _RATIO_STEPS) for size in free]
    return Room(
        [size - less for size, less in zip(room.first, spare, strict=True)],
        [size - less for size, less in zip(room.others, spare, strict=True)],
    )


def missing(layers: Sequence[int], room: Room, start: int) -> int:
    """Return the least bytes that every device would need in addition for all layers to fit.

    To the MiB, 0 if they fit.
    """
    unit = 1 << 20
    low, high = -1, 1 + (layers[-1] - layers[start] + max(0, -min(*room.first, *room.others))) // unit  # `high` fits
    while high - low > 1:
        middle = (low + high) // 2
        if reach(layers, room.more(middle * unit), start)[0] == len(layers) - 1:
            high = middle
        else:
            low = middle
    return high * unit
