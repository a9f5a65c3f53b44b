"""Layers onto devices, against trying everything."""

from __future__ import annotations

from itertools import accumulate, combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.plan.cover import Room, balance, fewest, missing, most, reach

MIB = 1 << 20


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], Room, int]:
    layers = list(accumulate(draw(st.lists(st.integers(0, 9), min_size=1, max_size=12)), initial=0))
    others = draw(st.lists(st.integers(-2, 30), min_size=1, max_size=5))
    first = [room - draw(st.integers(0, 4)) for room in others]
    return layers, Room(first, others), draw(st.integers(0, len(layers) - 2))


def holds(layers: list[int], room: Room, start: int, chosen: tuple[int, ...]) -> bool:
    """Whether some division among these devices, each with one layer at least, keeps to every room."""
    end = len(layers) - 1
    for cuts in combinations(range(start + 1, end), len(chosen) - 1):
        bounds = (start, *cuts, end)
        pieces = [layers[to] - layers[at] for at, to in pairwise(bounds)]
        if all(
            piece <= room.at(device, not place)
            for place, (device, piece) in enumerate(zip(chosen, pieces, strict=True))
        ):
            return True
    return False


@given(problems())
def test_fewest_finds_the_smallest_set(problem: tuple[list[int], Room, int]) -> None:
    layers, room, start = problem
    devices = range(len(room.first))
    sizes = [
        count
        for count in range(1, len(room.first) + 1)
        if any(holds(layers, room, start, chosen) for chosen in combinations(devices, count))
    ]
    found = fewest(layers, room, start)
    assert (found is None) == (not sizes)
    if found:
        assert len(found) == sizes[0]
        assert holds(layers, room, start, found)
        assert most(layers, room, start, len(found)) == 0
        assert len(found) == 1 or most(layers, room, start, len(found) - 1) > 0


@given(problems())
def test_one_pass_decides_whether_all_devices_together_hold_it(problem: tuple[list[int], Room, int]) -> None:
    layers, room, start = problem
    at, counts = reach(layers, room, start)
    assert sum(counts) == at - start
    assert (at == len(layers) - 1) == (fewest(layers, room, start) is not None)


@given(problems(), st.integers(0, 20))
def test_a_balanced_division_keeps_to_every_room(problem: tuple[list[int], Room, int], beside: int) -> None:
    layers, room, start = problem
    free = [max(0, size) + beside for size in room.others]
    if reach(layers, room, start)[0] < len(layers) - 1:
        return
    counts = balance(layers, room, free, start)
    assert sum(counts) == len(layers) - 1 - start
    at = start
    for device, count in enumerate(counts):
        assert not count or layers[at + count] - layers[at] <= room.at(device, at == start)
        at += count


def test_equal_devices_get_equal_parts() -> None:
    layers = list(accumulate([100] * 80, initial=0))
    room = Room([5900] * 2, [5900] * 2)
    assert balance(layers, room, [6000] * 2, 0) == [40, 40]
    assert balance(layers, Room([11900, 5900], [11900, 5900]), [12000, 6000], 0) == [
        54,
        26,
    ]  # 5500 of 12000 and 2700 of 6000


@given(problems())
def test_what_is_missing_would_do(problem: tuple[list[int], Room, int]) -> None:
    layers, room, start = problem
    layers = [size * MIB for size in layers]
    room = Room([size * MIB for size in room.first], [size * MIB for size in room.others])
    extra = missing(layers, room, start)
    assert reach(layers, room.more(extra), start)[0] == len(layers) - 1
    if extra:
        assert reach(layers, room.more(extra - MIB), start)[0] < len(layers) - 1
