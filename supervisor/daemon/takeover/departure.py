"""Hand the daemon over: a copy of this process finishes what has begun, and this process becomes its next image.

In order: the program on disk is tried in another process; no engine is started or ended any more, and those that come
up or go away do so to their end; what is to be kept is written. Then, without a turn of the loop between: what is
carried goes to memory that the next image inherits, the process forks, and the original executes the program anew. It
keeps its pid, its children and its listeners. Where any of this fails, everything goes on as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from supervisor import __version__
from supervisor.core.models.registry import launch_digest
from supervisor.core.schedule.events import ModelId
from supervisor.core.takeover.carried import (
    Carried,
    CarriedCopy,
    CarriedListener,
    CarriedPins,
    HeldProcess,
    encode,
)
from supervisor.core.takeover.lending import Lending
from supervisor.daemon.build import Engines, World
from supervisor.daemon.takeover import channel, signals, trial
from supervisor.daemon.takeover.guests import Guests
from supervisor.errors import ModelNotFound, TakeoverFailed, TakeoverUnsupported
from supervisor.system import processes

_log = structlog.get_logger()

CARRIED: Final = "SUPERVISOR_TAKEOVER"
"""The variable with the descriptor of what is carried."""

_SETTLE_S = 120.0
_FAILED = b"x"
_STILL_S = 5.0
_OTHERS_S, _END_S, _LOOK_S = 3.0, 10.0, 0.02


@dataclass(frozen=True)
class Leaving:
    """What is left to the copy: its end of the channel, and who lends slots until the next image has begun."""

    channel: socket.socket
    lending: Lending


def check_possible() -> None:
    """Raise TakeoverUnsupported where no image can take over."""
    if sys.platform != "linux" or threading.get_native_id() != os.getpid():
        raise TakeoverUnsupported(
            "A daemon can be replaced while it runs on Linux alone. Stop it and start it: `supervisor stop` lets "
            "requests end, for as long as server.drain says."
        )


@dataclass(frozen=True)
class Ours:
    """What is handed over. nats: the NATS server of a cluster, if this node runs it. stopping: the daemon is to end."""

    world: World
    engines: Engines
    guests: Guests
    nats: Callable[[], HeldProcess | None]
    stopping: Callable[[], bool]

    def others(self) -> list[HeldProcess]:
        """Return the processes that are no engines."""
        return [one for one in (self.engines.workers.held(), self.nats()) if one is not None]


async def depart(ours: Ours, env: Mapping[str, str]) -> Leaving:
    """Hand over; returns in the copy alone. env: what was taken out of the environment when this process started.

    Raises TakeoverFailed; everything goes on then.
    """
    check_possible()
    world, engines = ours.world, ours.engines
    found = await trial.try_next(trial.environment(env, {}))
    _log.info("takeover", version=found.version)
    engines.pool.hold()
    try:
        await _settle(engines)
        await world.keys.flush()
        await world.history.flush()
        await asyncio.to_thread(world.learning.flush)
        await _end_others(_known(ours))
        async with world.threads.still(_STILL_S):
            await _end_others(_known(ours))  # what has begun meanwhile
            return _become(ours, env)
    except BaseException:
        engines.pool.go_on()
        raise


async def _settle(engines: Engines) -> None:
    try:
        async with asyncio.timeout(_SETTLE_S):
            await engines.pool.settled()
    except TimeoutError:
        raise TakeoverFailed(
            f"An engine has been coming up, or going away, for {_SETTLE_S:g} s. The daemon goes on as it is; "
            "`supervisor ps` shows which one. Try again once it is ready."
        ) from None


def _known(ours: Ours) -> set[int]:
    """Return the children that the next image knows of."""
    others = (one.pid for one in ours.others())
    return {*ours.engines.pool.roster.pids(), *(copy.pid for copy in ours.guests.carried()), *others}


async def _end_others(known: set[int]) -> None:
    """End every other child, as nobody would know of it afterwards: downloads and builds that somebody waits for.

    Probes take a moment, and get it. Raises TakeoverFailed where one does not end.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while left := processes.children(os.getpid()) - known:
        waited = loop.time() - began
        if waited > _OTHERS_S + _END_S:
            raise TakeoverFailed(f"Processes {sorted(left)} of the daemon do not end. The daemon goes on as it is.")
        if waited > _OTHERS_S:
            for pid in left:
                processes.kill_tree(pid)
        await asyncio.sleep(_LOOK_S)


def _become(ours: Ours, env: Mapping[str, str]) -> Leaving:
    try:
        carried, lending = _carried(ours)
    except OSError as error:
        raise TakeoverFailed(f"An engine cannot be handed over: {error}. The daemon goes on; try again.") from error
    with signals.held_back():
        if ours.stopping():
            raise TakeoverFailed("The daemon is being stopped.")
        return _fork(carried, lending, env)


def _fork(carried: Carried, lending: Lending, env: Mapping[str, str]) -> Leaving:
    mine, theirs = channel.pair()
    die_with_us, loop = processes.parent_death_hook(), asyncio.get_running_loop()
    began_read, began_write = os.pipe()
    copy = os.fork()
    if copy == 0:
        asyncio._set_running_loop(loop)  # which is known of this thread of the other process alone
        _begin_copy(began_read, began_write, die_with_us)
        mine.close()
        return Leaving(theirs, lending)
    theirs.close()
    os.close(began_read)
    try:
        _execute(carried, CarriedCopy(copy, mine.fileno()), env)
    except OSError as error:
        os.write(began_write, _FAILED)
        raise TakeoverFailed(f"The program could not be executed: {error}. The daemon goes on as it is.") from error
    else:
        raise AssertionError("a process that executes another program does not come back")
    finally:  # after a failure alone
        os.close(began_write)
        mine.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(copy, 0)


def _begin_copy(began_read: int, began_write: int, die_with_parent: object) -> None:
    """Wait until the original has become another image; end where it could not."""
    os.close(began_write)
    if callable(die_with_parent):
        die_with_parent()
    if os.read(began_read, 1) == _FAILED:
        os._exit(0)
    os.close(began_read)


def _carried(ours: Ours) -> tuple[Carried, Lending]:
    world, engines, guests = ours.world, ours.engines, ours.guests
    held, lending = engines.pool.handed_over(guests.requests())
    pinned, ttl = engines.pins.told()
    door = world.door
    listeners = tuple(
        CarriedListener(host, port, one.fileno(), passed=door.passed and number == 0)
        for number, (one, (host, port)) in enumerate(zip(door.listeners, door.addresses, strict=True))
    )
    if (seat := world.seat) is not None:
        listeners += (CarriedListener(seat.kept.host, seat.kept.port, seat.listener.fileno()),)
    carried = Carried(
        program=__version__,
        lock=door.lock,
        listeners=listeners,
        secret=world.secret,
        engines=tuple(replace(one, launch=_launch(engines, one.model)) for one in held),
        copies=guests.carried(),
        schedule=engines.pool.scheduler.carried(),
        pins=CarriedPins(pinned, ttl),
        gateway=engines.workers.held(),
        nats=ours.nats(),
    )
    return carried, lending


def _launch(engines: Engines, model: ModelId) -> str:
    try:
        return launch_digest(engines.parts.registry.find(model))
    except ModelNotFound:
        return ""


def _execute(carried: Carried, copy: CarriedCopy, env: Mapping[str, str]) -> None:
    """Become the next image. Raises OSError where that cannot be; nothing of ours is changed then."""
    whole = replace(carried, copies=(*carried.copies, copy))
    memory = os.memfd_create("takeover")
    inherited = [memory, *_descriptors(whole)]
    try:
        os.write(memory, encode(whole))
        os.lseek(memory, 0, os.SEEK_SET)
        for one in inherited:
            os.set_inheritable(one, True)
        signals.ignore_wishes()
        argv = trial.command()
        os.execve(argv[0], argv, trial.environment(env, {CARRIED: str(memory)}))
    except OSError:
        for one in inherited:
            os.set_inheritable(one, False)
        os.close(memory)
        raise


def _descriptors(carried: Carried) -> list[int]:
    pipes = [one for engine in carried.engines for one in engine.process.pipes]
    own = [] if carried.lock is None else [carried.lock]
    return [
        *own,
        *(one.descriptor for one in carried.listeners),
        *pipes,
        *(() if carried.gateway is None else carried.gateway.pipes),
        *(() if carried.nats is None else carried.nats.pipes),
        *(one.channel for one in carried.copies),
    ]
