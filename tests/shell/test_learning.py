"""What is learned from real engines: their own account against the estimate, and what is kept of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
from structlog.testing import capture_logs

from supervisor.core.devices import Machine
from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.core.engine_output.footprint import DeviceFootprint, Footprint, asking
from supervisor.core.launch import LaunchOptions, LaunchSpec, Placed, build_launch
from supervisor.core.learn.history import learned
from supervisor.core.learn.identity import Start
from supervisor.core.memory import MemoryEstimate
from supervisor.core.models.registry import ModelEntry, Source
from supervisor.core.plan import Placement
from supervisor.engines.engine import Engine, EngineLimits, ReadyInfo
from supervisor.engines.llama.manner import Attendants, llama_engine
from supervisor.engines.log import OutputLog
from supervisor.llamacpp.digest import engine_digest
from supervisor.llamacpp.probe import capabilities
from supervisor.models.info import read_info
from supervisor.planning.known import Known
from supervisor.planning.learning import Intent, Learning, StartNotes, intent_of, start_of
from supervisor.planning.lookout import Lookout, Rules
from supervisor.pool.living import NOBODY
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.store import Database
from supervisor.system import processes
from supervisor.system.sockets import fresh_socket
from tests.evidence.subjects import write_subject
from tests.support.patience import PATIENCE
from tests.support.placements import placement
from tests.support.scripted import ScriptedModel
from tests.support.workers import rpc_worker

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

MIB = 1 << 20
ROUNDING = 0.005 * MIB + 1  # of one line of the log


@dataclass(frozen=True)
class Planned:
    """One start that was planned but not begun."""

    known: Known
    placed: Placed
    intent: Intent
    start: Start

    @property
    def estimate(self) -> MemoryEstimate:
        return self.placed.placement.estimate


@dataclass
class Workshop:
    """Plans engines on this machine and starts them by hand, as `prepare` does, and ends them."""

    folder: Path
    binary: Path
    database: Database
    learning: Learning
    log: OutputLog
    engines: list[Engine] = field(default_factory=list)

    @property
    def able(self) -> Capabilities:
        return capabilities(self.binary, self.folder / "capabilities.json")

    def know(self, model: Path, options: LaunchOptions) -> Known:
        info = read_info(model, options)
        digest = engine_digest(self.binary, self.folder / "digests.json")
        entry = ModelEntry("test", Source.FILE, str(model), options)
        return Known(entry, info, self.learning.observations(info.identity), digest, self.able.build)

    async def plan(self, model: Path, options: LaunchOptions, workers: Sequence[str] = ()) -> Planned:
        """Where it goes on this machine, with these RPC workers."""

        prober = Prober(Surroundings(os.environ))

        def look(again: bool, ours: Collection[str]) -> Machine:
            return prober.machine(self.binary, tuple(workers), again=again, ours=ours)

        sight = await Lookout(look, Rules).look(NOBODY)
        known = self.know(model, options)
        placement = sight.decide(known, options, ())
        assert isinstance(placement, Placement), placement
        intent = intent_of(placement, options, sight.devices_of(placement))
        start = start_of(known.info.identity, intent, known.engine, known.build)
        return Planned(known, sight.placed(placement), intent, start)

    def launch(self, planned: Planned) -> LaunchSpec:
        known, socket = planned.known, str(fresh_socket(self.folder / "run"))
        return build_launch(
            *(str(self.binary), str(known.info.model.path), socket, "test", known.entry.options),
            *(known.info.facts, self.able.flags),
            placed=planned.placed,
            cores=1,
        )

    def notes(self, planned: Planned) -> StartNotes:
        ours = {theirs: name for name, theirs in planned.placed.names.items()}
        return self.learning.begin(planned.start, planned.intent, ours, planned.known.info.spec.n_ctx_train)

    async def start(self, planned: Planned) -> ReadyInfo:
        notes = self.notes(planned)
        return await self.run(notes.asked(self.launch(planned), self.able.flags), notes)

    async def run(self, launch: LaunchSpec, notes: StartNotes | None) -> ReadyInfo:
        engine = llama_engine(
            launch,
            log=self.log,
            record_dir=self.folder / "children",
            limits=EngineLimits(),
            attendants=Attendants(notes),
        )
        self.engines.append(engine)
        async with asyncio.timeout(PATIENCE):
            return await engine.start(lambda _: None)

    async def slot_lines(self, launch: LaunchSpec) -> int:
        """How many lines an engine's slots write into its log for five requests."""
        await self.run(launch, None)
        engine, before = self.engines[-1], self.log.written
        for number in range(5):
            body = b'{"prompt": "Say it, number %d.", "max_tokens": 4}' % number
            async with engine.client.post("/v1/completions", body) as response:
                assert response.status == 200
                await response.json()
        await engine.stop()
        return sum(" slot " in line for line in self.log.tail(self.log.written - before))


@pytest.fixture
async def shop(tmp_path: Path, engine_binary: Path) -> AsyncIterator[Workshop]:
    database = Database.open(tmp_path / "state.db")
    learning = Learning(database, time.time)
    made = Workshop(tmp_path, engine_binary, database, learning, OutputLog(tmp_path / "engine.log"))
    yield made
    for engine in made.engines:
        await engine.stop()
    made.learning.close()
    made.log.close()


def footprint_of(info: ReadyInfo) -> Footprint:
    assert info.footprint is not None
    return info.footprint


def kept(shop: Workshop) -> Database:
    """What is in the file after everything was written."""
    shop.learning.close()
    return Database.read(shop.folder / "state.db")


def assert_equal_parts(found: Footprint, wanted: MemoryEstimate, lines: int = 1) -> None:
    """Weights, caches and states of every device, to the resolution of so many lines."""
    for device in wanted.devices:
        told = found.on(device.name)
        for part in ("weights_bytes", "kv_bytes", "recurrent_bytes"):
            difference = abs(getattr(told, part) - getattr(device, part))
            assert difference <= lines * ROUNDING, (device.name, part)
    assert {device.name for device in found.devices} == {device.name for device in wanted.devices}


UNMAPPED: Literal["none"] = (
    "none"  # the load mode with which the log has the tensors' size, instead of a span of the file
)


async def test_a_models_footprint_is_its_estimate(shop: Workshop, scripted_model: ScriptedModel) -> None:
    options = LaunchOptions(
        ctx_size=4096, parallel=2, embeddings="off", repack=False
    )  # a repacked copy is told besides
    planned = await shop.plan(scripted_model("It fits.", n_ctx=8192), options)
    info = await shop.start(planned)
    assert planned.intent.estimated == planned.estimate
    found = footprint_of(info)
    assert_equal_parts(found, planned.estimate)
    assert (found.n_ctx, found.n_ctx_seq, found.n_seq) == (4096, info.n_ctx, info.n_slots)


@pytest.mark.parametrize(
    "options",
    [
        LaunchOptions(parallel=1, tensor_split=(1, 1)),
        LaunchOptions(parallel=2, tensor_split=(3, 1), cache_type_k="q8_0", cache_type_v="q8_0"),
        LaunchOptions(parallel=1, device=("RPC1", "RPC0"), n_gpu_layers=6, tensor_split=(1, 2)),
    ],
    ids=["even", "quantised, 3 to 1", "the other way round, some layers on the host"],
)
async def test_two_workers_hold_what_was_estimated_for_each(shop: Workshop, options: LaunchOptions) -> None:
    model = write_subject("llama/wide", shop.folder)
    options = replace(options, ctx_size=4096, device=options.device or ("RPC0", "RPC1"), load_mode=UNMAPPED)
    with rpc_worker(shop.binary) as one, rpc_worker(shop.binary) as other:
        planned = await shop.plan(model, options, (one, other))
        found = footprint_of(await shop.start(planned))
        await shop.engines[-1].stop()
        shop.learning.flush()
        again = await shop.plan(model, options, (one, other))
    assert set(planned.placed.placement.devices) == {"RPC0", "RPC1"}
    assert_equal_parts(found, planned.estimate)
    assert shop.notes(again).known == found
    (observation,) = again.known.observations
    taught = learned([observation], again.start, again.estimate)
    assert taught is not None
    assert taught.same
    assert again.placed.placement.learned
    for part in again.placed.placement.parts:
        assert part.compute_bytes == pytest.approx(found.on(part.name).compute_bytes, abs=1)


async def test_drafting_with_the_models_own_blocks_is_in_the_parts(shop: Workshop) -> None:
    model = write_subject("qwen3next+experts+nextn/wide", shop.folder)
    options = LaunchOptions(ctx_size=4096, device=(), spec_type=("draft-mtp",), load_mode=UNMAPPED)
    planned = await shop.plan(model, options)
    assert_equal_parts(footprint_of(await shop.start(planned)), planned.estimate, lines=2)


async def test_the_second_start_is_quiet_and_its_footprint_known(shop: Workshop, demo_model: Path) -> None:
    options = LaunchOptions(ctx_size=4096)
    first = await shop.start(await shop.plan(demo_model, options))
    await shop.engines[-1].stop()
    shop.learning.flush()
    planned = await shop.plan(demo_model, options)
    launch, notes = shop.launch(planned), shop.notes(planned)
    assert notes.asked(launch, shop.able.flags) == launch
    before = shop.log.written
    second = await shop.run(launch, notes)
    assert second.footprint == first.footprint
    assert not any("buffer size" in line for line in shop.log.tail(shop.log.written - before))
    with kept(shop) as database:
        assert len(database.rows("SELECT * FROM footprints")) == 1
        assert len(database.rows("SELECT * FROM load_times")) == 2


async def test_other_options_are_learned_anew(shop: Workshop, demo_model: Path) -> None:
    small = await shop.start(await shop.plan(demo_model, LaunchOptions(ctx_size=4096)))
    shop.learning.flush()
    large = await shop.start(await shop.plan(demo_model, LaunchOptions(ctx_size=8192)))
    assert footprint_of(large).on("CPU").kv_bytes == 2 * footprint_of(small).on("CPU").kv_bytes


@pytest.mark.parametrize(("code", "believed"), [("out_of_memory", 0), ("engine_killed", 0), ("model_load_failed", 1)])
async def test_what_made_a_plan_too_small_is_forgotten_at_once(
    shop: Workshop, demo_model: Path, code: str, believed: int
) -> None:
    options = LaunchOptions(ctx_size=4096, extra_args=("--no-warmup",))
    planned = await shop.plan(demo_model, options)
    start = planned.start
    low = Footprint((DeviceFootprint("CPU", compute_bytes=1),), 4096, 4096, 1)
    shop.learning.keep(replace(shop.notes(planned), intent=Intent({}, estimated=planned.estimate)), 1, 1.0, low)
    shop.learning.flush()
    assert len(shop.learning.observations(start.model)) == 1
    shop.notes(planned).failed(code)
    assert len(shop.learning.observations(start.model)) == believed
    with kept(shop) as database:
        assert len(database.rows("SELECT * FROM footprints")) == believed


async def test_a_known_footprint_of_another_context_is_not_shown(shop: Workshop, demo_model: Path) -> None:
    planned = await shop.plan(demo_model, LaunchOptions(ctx_size=4096))
    found = footprint_of(await shop.start(planned))
    notes = replace(shop.notes(planned), known=found)
    assert notes.ready(1, 1.0, found.n_ctx_seq, None) == found
    assert notes.ready(1, 1.0, found.n_ctx_seq // 2, None) is None


async def test_what_lies_beside_the_buffers_on_the_host_is_small_and_positive(shop: Workshop, demo_model: Path) -> None:
    await shop.start(await shop.plan(demo_model, LaunchOptions(ctx_size=32768)))
    pid = shop.engines[-1].pid
    assert pid is not None
    held = processes.anonymous_bytes(pid)
    if held is None:
        pytest.skip("this platform does not tell anonymous memory")
    with kept(shop) as database:
        ((plain,),) = database.rows("SELECT overhead ->> '$.CPU' FROM footprints")
    assert 1 * MIB < int(plain) <= held < 64 * MIB


async def test_lines_about_requests_do_not_reach_the_log_of_an_engine_that_we_asked(
    shop: Workshop, scripted_model: ScriptedModel
) -> None:
    planned = await shop.plan(scripted_model("A few words.", n_ctx=4096), LaunchOptions())
    usual = await shop.slot_lines(shop.launch(planned))
    asked = shop.launch(planned)
    asked = replace(asked, argv=asking(asked.argv, shop.able.flags))
    assert await shop.slot_lines(asked) == usual > 0


async def test_a_store_that_fails_fails_nobody(shop: Workshop, demo_model: Path) -> None:
    shop.database.close()
    with capture_logs() as said:
        info = await shop.start(await shop.plan(demo_model, LaunchOptions(ctx_size=4096)))
        shop.learning.flush()
    assert info.footprint is not None
    assert [line["event"] for line in said] == ["store_unreadable", "store_unreadable", "start_not_kept"]


def test_values_of_the_environment_are_kept_as_hashes_alone() -> None:
    options = LaunchOptions(env={"HF_TOKEN": "hf_secret"})
    intent = intent_of(placement(()), options, ())
    assert "HF_TOKEN=" in str(intent.settings)
    assert "hf_secret" not in str(intent.settings)
    assert intent.estimated is None
    other = intent_of(placement(()), LaunchOptions(env={"HF_TOKEN": "another"}), ())
    assert other.settings != intent.settings


def test_of_a_long_option_the_hash_is_kept() -> None:
    """Clients choose it, and the store keeps thousands of starts."""
    long, other = (LaunchOptions(extra_args=("--grammar", "x" * 30_000 + end)) for end in "ab")
    first = intent_of(placement(()), long, ()).settings
    assert len(str(first)) < 10_000
    assert first == intent_of(placement(()), long, ()).settings != intent_of(placement(()), other, ()).settings
    short = intent_of(placement(()), LaunchOptions(extra_args=("--no-warmup",)), ()).settings
    assert "--no-warmup" in str(short)
