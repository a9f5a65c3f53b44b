"""The engine of a command, without a daemon: its start, its end, its memory, its place."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.devices import Budget, Budgets
from supervisor.core.launch import LaunchOptions
from supervisor.core.launch.fallback import Fallback
from supervisor.core.learn.history import Observation
from supervisor.core.models.registry import ModelEntry, Source
from supervisor.core.plan import DoesNotFit, Seat
from supervisor.core.schedule.events import Failure
from supervisor.engines.command.kind import COMMAND, CommandPlanning
from supervisor.engines.command.options import CommandOptions
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.kind import Ground, Read, Yard
from supervisor.engines.log import OutputLog
from supervisor.errors import EngineStalled, EngineStartFailed, InvalidRequest, MemoryUnknown
from supervisor.pool.living import NOBODY
from supervisor.store import Database, Footprints
from supervisor.system import processes
from supervisor.system.child import StopGrace
from tests.shell.waiting import until, until_gone
from tests.support.patience import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="engines listen on Unix sockets"),
]

SERVER = str(Path(__file__).parents[1] / "fakes" / "openai_server.py")
GRACE = StopGrace(ask_s=0.05, term_s=0.5)
MIB = 1 << 20


def on_socket(*more: str, **options: Any) -> CommandOptions:
    return CommandOptions(command=(sys.executable, SERVER, "--socket", "${SOCKET}", *more), **options)


def entry_of(options: CommandOptions, **env: str) -> ModelEntry:
    return ModelEntry("mine", Source.COMMAND, None, LaunchOptions(env=env), kind="command", own=options)


@dataclass
class Remembering:
    """What starts showed, in a store that is the test's own; written at once."""

    database: Database

    def observations(self, model: str) -> tuple[Observation, ...]:
        return Footprints(self.database).find(model)

    def later(self, what: str, job: Callable[[Database], None]) -> None:
        job(self.database)


@dataclass
class Bench:
    """A folder with all that engines need and leave."""

    folder: Path
    memory: Remembering
    devices: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = OutputLog(None)

    async def engine(self, options: CommandOptions, stall_s: float = 120, **env: str) -> Engine:
        yard = Yard(
            memory=self.memory,
            clock=lambda: 1.0,
            process_bytes=lambda pid: self.devices,
            env={"PATH": os.environ["PATH"], "SECRET_KEY": "ours"},
            records=self.folder / "children",
            runtime=self.folder / "run",
            limits=lambda: EngineLimits(stall_s=stall_s, grace=GRACE),
            log=lambda model: self.log,
            gguf=None,  # type: ignore[arg-type]  # nothing here is in GGUF
        )
        entry = entry_of(options, **env)
        sight: Any = None
        return await COMMAND.launching(yard).prepare(Read(entry), sight, Seat("mine", {"CPU": 0}))

    async def start(self, engine: Engine) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await engine.start(lambda progress: None)

    def assert_nothing_left(self, engine: Engine) -> None:
        assert engine.pid is None or processes.session_members(engine.pid) == ()
        assert not list((self.folder / "run").glob("*.sock"))
        assert not list((self.folder / "children").glob("*"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Database.open(tmp_path / "store.db") as database:
        yield Bench(tmp_path, Remembering(database))


async def test_it_is_ready_with_its_slots_and_leaves_nothing(bench: Bench) -> None:
    engine = await bench.engine(on_socket(slots=7))
    ready = await bench.start(engine)
    assert (ready.n_slots, ready.n_ctx) == (7, None)
    assert await engine.alive(PATIENCE)
    await engine.stop()
    bench.assert_nothing_left(engine)


async def test_a_wrapper_takes_what_it_forked_along(bench: Bench) -> None:
    script = f"{sys.executable} {SERVER} --socket $0 & echo $! > {bench.folder}/pid; wait"
    engine = await bench.engine(CommandOptions(command=("/bin/sh", "-c", script, "${SOCKET}")))
    await bench.start(engine)
    pid = int((bench.folder / "pid").read_text())
    await engine.stop()
    await until_gone(pid)
    bench.assert_nothing_left(engine)


async def test_one_that_is_never_ready_stalls_though_it_writes_of_every_question(bench: Bench) -> None:
    engine = await bench.engine(on_socket("--never-ready"), stall_s=3)
    with pytest.raises(EngineStalled):
        await bench.start(engine)
    bench.assert_nothing_left(engine)
    assert not any("GET /health" in line for line in engine.tail(100))


async def test_any_accepted_status_is_ready(bench: Bench) -> None:
    engine = await bench.engine(on_socket("--never-ready", ready_statuses=(200, 503)))
    await bench.start(engine)
    await engine.stop()


async def test_one_that_ends_says_how_and_its_last_words(bench: Bench) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no model in ${SOCKET}')")
    engine = await bench.engine(CommandOptions(command=command))
    with pytest.raises(EngineStartFailed, match="exit code 1") as caught:
        await bench.start(engine)
    assert any("no model" in line for line in caught.value.log_lines)
    bench.assert_nothing_left(engine)


async def test_a_program_that_is_not_there_is_named(bench: Bench) -> None:
    engine = await bench.engine(CommandOptions(command=("/nowhere/server", "${SOCKET}")))
    with pytest.raises(EngineStartFailed, match="/nowhere/server"):
        await bench.start(engine)


async def test_stop_is_run_with_its_pid_before_the_process_is_ended(bench: Bench) -> None:
    told = bench.folder / "told"
    say = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    engine = await bench.engine(on_socket(stop=(sys.executable, "-c", say, str(told), "${PID} ${SOCKET}")))
    await bench.start(engine)
    await engine.stop()
    assert told.read_text() == f"{engine.pid} {engine.socket}"
    bench.assert_nothing_left(engine)


async def test_a_stop_that_is_not_there_ends_it_all_the_same(bench: Bench) -> None:
    engine = await bench.engine(on_socket(stop=("/nowhere/stop",)))
    await bench.start(engine)
    await engine.stop()
    bench.assert_nothing_left(engine)


async def test_it_gets_its_own_variables_and_no_secret_of_ours(bench: Bench) -> None:
    show = f"env > {bench.folder}/env; exec {sys.executable} {SERVER} --socket $0"
    engine = await bench.engine(CommandOptions(command=("/bin/sh", "-c", show, "${SOCKET}")), MINE="1")
    await bench.start(engine)
    await engine.stop()
    seen = (bench.folder / "env").read_text().splitlines()
    assert "MINE=1" in seen
    assert not any(line.startswith("SECRET_KEY") for line in seen)


# -- what it holds -----------------------------------------------------------------------------------------------------


async def test_what_it_holds_is_measured_and_the_largest_is_kept(bench: Bench) -> None:
    bench.devices = {"CUDA0": 300 * MIB}
    options = on_socket("--hold", "96")
    engine = await bench.engine(options)
    ready = await bench.start(engine)
    held = ready.footprint.used_bytes
    assert 96 * MIB < held["CPU"] < 400 * MIB
    assert held["CUDA0"] == 300 * MIB
    bench.devices = {"CUDA0": 500 * MIB}
    assert await engine.alive(PATIENCE)
    bench.devices = {"CUDA0": 100 * MIB}
    assert await engine.alive(PATIENCE)
    await engine.stop()
    read = await planning(bench).know(entry_of(options), NOBODY)
    assert read.measured
    assert read.holds["CUDA0"] == 500 * MIB


async def test_children_count(bench: Bench) -> None:
    script = f"{sys.executable} {SERVER} --hold 96 --socket $0; true"
    engine = await bench.engine(CommandOptions(command=("/bin/sh", "-c", script, "${SOCKET}")))
    ready = await bench.start(engine)
    assert ready.footprint.used_bytes["CPU"] > 96 * MIB
    await engine.stop()


def planning(bench: Bench) -> CommandPlanning:
    return CommandPlanning(Ground(bench.memory, lambda: 1.0, None, None))  # type: ignore[arg-type]  # nothing is in GGUF


async def test_another_command_and_other_variables_are_not_what_was_measured(bench: Bench) -> None:
    options = on_socket(memory={"CPU": 64})
    engine = await bench.engine(options, MINE="1")
    await bench.start(engine)
    await engine.stop()
    plans = planning(bench)
    assert (await plans.know(entry_of(options, MINE="1"), NOBODY)).measured
    for other in (entry_of(options, MINE="2"), entry_of(on_socket("--hold", "1", memory={"CPU": 64}), MINE="1")):
        read = await plans.know(other, NOBODY)
        assert (read.measured, read.holds) == (False, {"CPU": 64 * MIB})


async def test_a_device_that_was_not_measured_keeps_what_is_said(bench: Bench) -> None:
    options = on_socket(memory={"CPU": 4096, "Vulkan0": 2048})
    engine = await bench.engine(options)
    await bench.start(engine)
    await engine.stop()
    read = await planning(bench).know(entry_of(options), NOBODY)
    assert read.holds["Vulkan0"] == 2048 * MIB
    assert read.holds["CPU"] < 1024 * MIB


async def test_nobody_knowing_is_an_error_that_says_what_to_do(bench: Bench) -> None:
    with pytest.raises(MemoryUnknown, match="`memory` by device"):
        await planning(bench).know(entry_of(on_socket()), NOBODY)


async def test_a_container_is_never_measured(bench: Bench, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} {SERVER} "$@"\n')
    docker.chmod(0o755)
    options = CommandOptions(command=(str(docker), "run", "--socket", "${SOCKET}"), stop=("true",), memory={"CPU": 9})
    engine = await bench.engine(options)
    ready = await bench.start(engine)
    assert ready.footprint is None
    assert engine.memory() is None
    await engine.stop()
    assert bench.memory.observations(options.identity({})) == ()
    read = await planning(bench).know(entry_of(options), NOBODY)
    assert (read.measured, read.holds) == (False, {"CPU": 9 * MIB})


@dataclass(frozen=True)
class Look:
    budgets: Budgets
    machine: Any = None


async def test_its_place_is_what_it_holds(bench: Bench) -> None:
    plans = planning(bench)
    read = await plans.know(entry_of(on_socket(memory={"GPU0": 8, "CPU": 2})), NOBODY)
    here = Budgets((Budget("GPU0", "cuda", 10 * MIB, 10 * MIB),), Budget("CPU", "cpu", 4 * MIB, 4 * MIB))
    found, _ = plans.plan(read, Look(here), ())
    assert isinstance(found, Seat)
    assert (found.used_bytes, found.devices) == ({"CPU": 2 * MIB, "GPU0": 8 * MIB}, ("GPU0",))
    small = replace(here, host=Budget("CPU", "cpu", MIB, MIB))
    refused, _ = plans.plan(read, Look(small), ())
    assert isinstance(refused, DoesNotFit)
    assert "CPU: 2 MiB needed, 1 MiB free, 1 MiB missing" in refused.message


TAKEN = Failure("engine_start_failed", "it ended", ("x", "OSError: [Errno 98] Address already in use"))


@pytest.mark.parametrize(
    ("where", "failure", "tries"),
    [
        ("${PORT}", TAKEN, 2),
        ("${SOCKET}", TAKEN, 0),
        ("${PORT}", Failure("engine_start_failed", "it ended", ("no model",)), 0),
    ],
)
async def test_a_port_that_was_taken_is_tried_twice_more(
    bench: Bench, where: str, failure: Failure, tries: int
) -> None:
    plans, entry = planning(bench), entry_of(CommandOptions(command=("server", where)))
    fallback, count = Fallback(), 0
    while (found := plans.again(fallback, failure, entry, Seat("mine", {}))) is not None:
        fallback, count = found, count + 1
    assert (count, len(fallback.steps)) == (tries, tries)


async def test_a_client_gives_it_no_arguments(bench: Bench) -> None:
    planning(bench).check(entry_of(on_socket()))
    with pytest.raises(InvalidRequest):
        planning(bench).check(entry_of(on_socket()), ("--port",))


async def test_an_end_by_itself_is_noticed(bench: Bench) -> None:
    engine = await bench.engine(on_socket())
    await bench.start(engine)
    engine.kill()
    await until(engine.exit.done, "the exit is seen")
    await engine.stop()
    bench.assert_nothing_left(engine)


def test_the_identity_names_no_secret() -> None:
    env: Mapping[str, str] = {"TOKEN": "very-secret"}
    found = on_socket().identity(env)
    assert found.startswith("command:")
    assert "secret" not in found
