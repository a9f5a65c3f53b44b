"""Decide whether a setting fits into a space, and on which devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from supervisor.core.memory import EstimateOptions, Shape, place_layers
from supervisor.core.plan.cover import Room, balance, fewest, reach
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.sizes import Load, Setting, Sizes
from supervisor.core.plan.space import Space

HOST_ONLY = Pool((), listed=True)


@dataclass(frozen=True, slots=True)
class Board:
    """A setting's layers, and the room for them on the devices of a pool.

    Attributes:
        free: bytes by device before anything of this engine is there.
        host_left: of the host, once it has what it must hold; devices that share its memory are not in it.
    """

    load: Load
    start: int
    room: Room
    free: tuple[int, ...]
    host_left: int

    @property
    def need(self) -> int:
        """Bytes of the layers that go to devices."""
        return self.load.layers[-1] - self.load.layers[self.start]

    def uncovered(self) -> int:
        """Return the bytes of layers that find no place."""
        return self.load.layers[-1] - self.load.layers[reach(self.load.layers, self.room, self.start)[0]]

    def spare(self) -> int:
        """Return the bytes that are left on the last device when the others are full; negative if it lacks some."""
        layers, room = self.load.layers, self.room
        at, _ = reach(layers, Room(room.first[:-1], room.others[:-1]), self.start)
        rest = layers[-1] - layers[at]
        spare = room.at(len(room.first) - 1, at == self.start) - rest
        return spare if rest else max(0, spare)


def shape_on(sizes: Sizes, setting: Setting, n_devices: int) -> Shape:
    """Return the shape of a setting in an engine with a list of so many devices."""
    if setting.start >= sizes.n_places or not n_devices:
        return "host"
    if setting.start:
        return "mixed"
    return "solo" if n_devices == 1 else "pipeline"


def board_of(sizes: Sizes, setting: Setting, space: Space, pool: Pool, shape: Shape) -> Board:
    """Return the board of a setting: the free bytes on the pool, and the setting's load there."""
    load = sizes.load(setting, shape, pool)
    left = space.host - load.host
    budgets = sizes.budgets.devices
    sharing = sum(budgets[device].shares_host for device in pool.devices)
    free = tuple([
        min(space.devices[device], left // sharing)
        if sharing and budgets[device].shares_host
        else space.devices[device]
        for device in pool.devices
    ])
    lead = load.lead
    own = free
    if pool.listed and free:  # the first of the list has what leads, with or without layers
        own = (free[0] - lead[0], *free[1:])
        lead = (0,) * len(free)
    first = [size - less - more for size, less, more in zip(own, load.first, lead, strict=True)]
    others = [size - less for size, less in zip(own, load.others, strict=True)]
    return Board(load, setting.start, Room(first, others), free, left)


def fits(sizes: Sizes, setting: Setting, space: Space, pools: Sequence[Pool]) -> bool:
    """Return whether some devices of some pool hold the setting, and the host the rest."""
    if setting.start >= sizes.n_places:
        return fits_list(sizes, setting, space, HOST_ONLY)
    return any(fits_pool(sizes, setting, space, pool) for pool in pools)


def fits_pool(sizes: Sizes, setting: Setting, space: Space, pool: Pool) -> bool:
    """Return whether some devices of the pool hold the setting: exact, see `cover`."""
    if pool.listed:
        return fits_list(sizes, setting, space, pool)
    if setting.start == 0 or pool.single:
        board = board_of(sizes, setting, space, pool, shape_on(sizes, setting, 1))
        if board.host_left < 0:
            return False
        if max(board.room.first) >= board.need:
            return True
        if pool.single:
            return False
    board = board_of(sizes, setting, space, pool, shape_on(sizes, setting, 2))
    return board.host_left >= 0 and board.uncovered() == 0


def host_left(sizes: Sizes, setting: Setting, space: Space, pool: Pool) -> int:
    """Return the bytes left on the host beside devices that share its memory; it falls as more goes to the host."""
    return board_of(sizes, setting, space, pool, shape_on(sizes, setting, min(2, len(pool.devices)))).host_left


def fits_list(sizes: Sizes, setting: Setting, space: Space, pool: Pool) -> bool:
    """Return whether exactly these devices hold the setting."""
    return margin(sizes, setting, space, pool) >= 0


def margin(sizes: Sizes, setting: Setting, space: Space, pool: Pool) -> int:
    """Return the bytes that are left on a list of devices, or, negative, that are missing: a measure to search by."""
    board = board_of(sizes, setting, space, pool, shape_on(sizes, setting, len(pool.devices)))
    worst = min((size - less for size, less in zip(board.free, _idle(board.load), strict=True)), default=0)
    if board.host_left < 0 or worst < 0:
        return min(board.host_left, worst)
    if setting.start >= sizes.n_places:
        return board.host_left
    if pool.shares:
        counts = shared_out(sizes, setting, pool)
        return min(size - used for size, used in zip(board.free, spent(board.load, counts, setting.start), strict=True))
    return min(board.host_left, board.spare())


def _idle(load: Load) -> list[int]:
    """Return the bytes that the devices of a list take without a layer."""
    return [
        size + (lead if not number else 0) for number, (size, lead) in enumerate(zip(load.idle, load.lead, strict=True))
    ]


def spent(load: Load, counts: Sequence[int], start: int) -> list[int]:
    """Return the bytes on each device of a list with so many layers each."""
    found = _idle(load)
    at = start
    for device, count in enumerate(counts):
        if count:
            beside = load.first if at == start else load.others
            found[device] += beside[device] - load.idle[device] + load.layers[at + count] - load.layers[at]
        at += count
    return found


def shared_out(sizes: Sizes, setting: Setting, pool: Pool) -> list[int]:
    """Return layers per device by the user's shares, as llama.cpp counts them."""
    names = tuple(str(device) for device in pool.devices)
    layers = sizes.n_places - setting.start
    places = place_layers(
        sizes.request.spec, EstimateOptions(devices=names, tensor_split=pool.shares, n_gpu_layers=layers)
    )
    return [places.count(device) for device in range(len(names))]


def layers_on(sizes: Sizes, setting: Setting, space: Space, pool: Pool) -> list[int]:
    """Return layers per device of a list on which the setting fits."""
    if not pool.devices or setting.start >= sizes.n_places:
        return [0] * len(pool.devices)
    if pool.shares:
        return shared_out(sizes, setting, pool)
    board = board_of(sizes, setting, space, pool, shape_on(sizes, setting, len(pool.devices)))
    return balance(board.load.layers, board.room, board.free, setting.start)


@dataclass(frozen=True, slots=True)
class Taste:
    """What is preferred of devices that all hold a setting.

    Attributes:
        roomy: whether a list of them has room for all that the setting may grow to.
        shunned: devices, by their place in the budgets, on which the model has another engine.
    """

    roomy: Callable[[Pool], bool]
    shunned: frozenset[int] = frozenset()

    def best(self, lists: Sequence[Pool]) -> Pool | None:
        """Return the first roomy list without a device that is shunned, else the first that is roomy."""
        apart = [one for one in lists if self.shunned.isdisjoint(one.devices)]
        return next(filter(self.roomy, (*apart, *lists)), None)


def choose(sizes: Sizes, setting: Setting, space: Space, pools: Sequence[Pool], taste: Taste) -> Pool | None:
    """Return the devices for a setting: as few as suffice, as a list.

    Of several sets that suffice, take the tightest that is `roomy`, which leaves the large holes to the next model,
    and rather one without a device that is shunned; where none is roomy, take the one with most room. The sets that
    are looked at are neighbours in order of room.
    """
    if setting.start >= sizes.n_places:
        return HOST_ONLY if fits_list(sizes, setting, space, HOST_ONLY) else None
    for pool in pools:
        if pool.listed and fits_list(sizes, setting, space, pool):
            return pool
        chosen = None if pool.listed else _smallest(sizes, setting, space, pool)
        found = _prefer(sizes, setting, space, (pool, chosen), taste) if chosen else None
        if found and (found.backend == pool.backend or fits_list(sizes, setting, space, found)):
            return found  # a part of a mixture may be of one back end, which counts otherwise
    return None


def _smallest(sizes: Sizes, setting: Setting, space: Space, pool: Pool) -> tuple[int, ...] | None:
    """Return the fewest devices that hold a setting, by their places in the pool."""
    alone = setting.start == 0 or pool.single
    if alone:
        board = board_of(sizes, setting, space, pool, shape_on(sizes, setting, 1))
        if board.host_left < 0:
            return None
        enough = [device for device, room in enumerate(board.room.first) if room >= board.need]
        if enough or pool.single:
            return tuple(enough[:1]) or None
    board = board_of(sizes, setting, space, pool, shape_on(sizes, setting, 2))
    if board.host_left < 0:
        return None
    return fewest(board.load.layers, board.room, setting.start, least=2 if alone else 1)


def _prefer(
    sizes: Sizes,
    setting: Setting,
    space: Space,
    found: tuple[Pool, tuple[int, ...]],
    taste: Taste,
) -> Pool:
    pool, fallback = found
    count = len(fallback)
    board = board_of(sizes, setting, space, pool, shape_on(sizes, setting, count))
    rooms = board.room.others
    places = range(len(rooms))
    rising = sorted(places, key=lambda device: (rooms[device], device))
    falling = sorted(places, key=lambda device: (-rooms[device], device))
    freest = list_of(pool, falling[:count])
    if taste.roomy(freest):  # of devices with equal room, it may have others than the last of the neighbours has
        return taste.best(_neighbours(pool, rising, count)) or freest
    fitting = (devices for devices in _neighbours(pool, falling, count) if fits_list(sizes, setting, space, devices))
    return next(fitting, list_of(pool, fallback))


def _neighbours(pool: Pool, order: Sequence[int], count: int) -> list[Pool]:
    return [list_of(pool, order[at : at + count]) for at in range(len(order) - count + 1)]


def list_of(pool: Pool, places: Sequence[int]) -> Pool:
    """Return some devices of a pool, by their places in it, as an engine's list.

    Who leads is still the first that holds layers: what grows on the list then fits the pool by the same rule, and a
    context that was found too large for the pool is never reached on a part of it.
    """
    kept = sorted(places)
    devices = tuple(pool.devices[place] for place in kept)
    return replace(pool, devices=devices, backends=tuple(pool.backends[place] for place in kept))
