"""What is learned from real engines: their own account against the estimate, and what is kept of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor import processes
from supervisor.core.footprint import Footprint, asking
from supervisor.core.identity import plain_settings
from supervisor.core.launch import LaunchOptions, LaunchSpec, ModelFacts, build_launch, facts_of
from supervisor.core.learn import learned
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.engine import Engine, EngineLimits, ReadyInfo
from supervisor.engine_log import OutputLog
from supervisor.learning import Intent, Learning, StartNotes, intent_of
from supervisor.llamacpp.digest import engine_digest
from supervisor.llamacpp.probe import capabilities
from supervisor.modelfiles import open_model
from supervisor.sockets import fresh_socket
from supervisor.store import Database
from tests.evidence.compare import spec_of
from tests.evidence.measure import Server
from tests.evidence.subjects import write_subject
from tests.support.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

MIB = 1 << 20
ROUNDING = 0.005 * MIB + 1  # of one line of the log
HOST_BACKENDS = ("cpu", "rpc")


@dataclass
class Workshop:
    """Starts engines by hand, as `prepare` does, and ends them."""

    folder: Path
    binary: Path
    database: Database
    learning: Learning
    log: OutputLog
    engines: list[Engine] = field(default_factory=list)

    @property
    def flags(self) -> frozenset[str]:
        return capabilities(self.binary, self.folder / "capabilities.json").flags

    def launch(self, model: Path, options: LaunchOptions) -> LaunchSpec:
        socket = str(fresh_socket(self.folder / "run"))
        facts = facts_of(open_model(model).header)
        return build_launch(str(self.binary), str(model), socket, "test", options, facts, self.flags)

    def notes(
        self, model: Path, launch: LaunchSpec, options: LaunchOptions, intent: Intent | None = None
    ) -> StartNotes:
        header = open_model(model).header
        intent = intent or intent_of(header, launch, options, HOST_BACKENDS)
        return self.learning.begin(header, intent, engine_digest(self.binary, self.folder / "digests.json"), 0)

    async def start(self, model: Path, options: LaunchOptions, intent: Intent | None = None) -> ReadyInfo:
        launch = self.launch(model, options)
        notes = self.notes(model, launch, options, intent)
        return await self.run(notes.asked(launch, self.flags), notes)

    async def run(self, launch: LaunchSpec, notes: StartNotes | None) -> ReadyInfo:
        engine = Engine(launch, log=self.log, record_dir=self.folder / "children", limits=EngineLimits(), notes=notes)
        self.engines.append(engine)
        async with asyncio.timeout(60):
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


def estimated(subject: str, options: EstimateOptions) -> MemoryEstimate:
    found = estimate(spec_of(subject), options)
    assert isinstance(found, MemoryEstimate)
    return found


def assert_equal_parts(found: Footprint, wanted: MemoryEstimate, lines: int = 1) -> None:
    """Weights, caches and states of every device, to the resolution of so many lines."""
    for device in wanted.devices:
        told = found.on(device.name)
        for part in ("weights_bytes", "kv_bytes", "recurrent_bytes"):
            difference = abs(getattr(told, part) - getattr(device, part))
            assert difference <= lines * ROUNDING, (device.name, part)
    assert {device.name for device in found.devices} == {device.name for device in wanted.devices}


UNMAPPED = ("-lm", "none")  # the log has the tensors' size, instead of a span of the file


async def test_a_models_footprint_is_its_estimate(shop: Workshop, scripted_model: ScriptedModel) -> None:
    model = scripted_model("It fits.", n_ctx=8192)
    options = LaunchOptions(ctx_size=4096, parallel=2, embeddings="off")
    info = await shop.start(model, options)
    intent = intent_of(open_model(model).header, shop.launch(model, options), options, HOST_BACKENDS)
    assert intent.estimated is not None
    found = footprint_of(info)
    assert_equal_parts(found, intent.estimated)
    assert (found.n_ctx, found.n_ctx_seq, found.n_seq) == (4096, info.n_ctx, info.n_slots)


@pytest.mark.parametrize(
    ("flags", "options", "split"),
    [
        (LaunchOptions(ctx_size=4096, parallel=1), EstimateOptions(ctx_size=4096, parallel=1), (1, 1)),
        (
            LaunchOptions(ctx_size=4096, parallel=2, extra_args=("-ctk", "q8_0", "-ctv", "q8_0")),
            EstimateOptions(ctx_size=4096, parallel=2, cache_type_k="q8_0", cache_type_v="q8_0"),
            (3, 1),
        ),
    ],
    ids=["even", "quantised, 3 to 1"],
)
async def test_two_workers_hold_what_was_estimated_for_each(
    shop: Workshop, flags: LaunchOptions, options: EstimateOptions, split: tuple[float, ...]
) -> None:
    model = write_subject("llama/wide", shop.folder)
    options = replace(options, devices=("RPC0", "RPC1"), tensor_split=split)
    wanted = estimated("llama/wide", options)
    with Server(shop.binary).workers(2) as workers:
        more = ("--rpc", ",".join(workers), "-ts", ",".join(map(str, split)), "-fit", "off", *UNMAPPED)
        launch_options = replace(flags, extra_args=(*flags.extra_args, *more))
        intent = Intent(plain_settings(options), options.devices, tuple(workers), wanted)
        found = footprint_of(await shop.start(model, launch_options, intent))
        await shop.engines[-1].stop()
    assert_equal_parts(found, wanted)
    shop.learning.flush()
    notes = shop.notes(model, shop.launch(model, launch_options), launch_options, intent)
    assert notes.known == found
    (observation,) = shop.learning.observations(notes.start.model)
    taught = learned([observation], notes.start, wanted)
    assert taught is not None
    assert taught.same
    for device in wanted.devices:
        exact = device.compute_bytes * taught.compute[device.name]
        assert exact == pytest.approx(found.on(device.name).compute_bytes, abs=1)


async def test_drafting_with_the_models_own_blocks_is_in_the_parts(shop: Workshop) -> None:
    subject = "qwen3next+experts+nextn/wide"
    model = write_subject(subject, shop.folder)
    wanted = estimated(subject, EstimateOptions(ctx_size=4096, devices=(), speculative="draft-mtp"))
    options = LaunchOptions(ctx_size=4096, extra_args=("--spec-type", "draft-mtp", *UNMAPPED))
    found = footprint_of(await shop.start(model, options))
    assert_equal_parts(found, wanted, lines=2)


async def test_the_second_start_is_quiet_and_its_footprint_known(shop: Workshop, demo_model: Path) -> None:
    options = LaunchOptions(ctx_size=4096)
    first = await shop.start(demo_model, options)
    await shop.engines[-1].stop()
    shop.learning.flush()
    launch = shop.launch(demo_model, options)
    notes = shop.notes(demo_model, launch, options)
    assert notes.asked(launch, shop.flags) == launch
    before = shop.log.written
    second = await shop.run(launch, notes)
    assert second.footprint == first.footprint
    assert not any("buffer size" in line for line in shop.log.tail(shop.log.written - before))
    with kept(shop) as database:
        assert len(database.rows("SELECT * FROM footprints")) == 1
        assert len(database.rows("SELECT * FROM load_times")) == 2


async def test_other_options_are_learned_anew(shop: Workshop, demo_model: Path) -> None:
    small = await shop.start(demo_model, LaunchOptions(ctx_size=4096))
    large = await shop.start(demo_model, LaunchOptions(ctx_size=8192))
    assert footprint_of(large).on("CPU").kv_bytes == 2 * footprint_of(small).on("CPU").kv_bytes


async def test_a_known_footprint_of_another_context_is_not_shown(shop: Workshop, demo_model: Path) -> None:
    options = LaunchOptions(ctx_size=4096)
    found = footprint_of(await shop.start(demo_model, options))
    notes = replace(shop.notes(demo_model, shop.launch(demo_model, options), options), known=found)
    assert notes.ready(1, 1.0, found.n_ctx_seq, None) == found
    assert notes.ready(1, 1.0, found.n_ctx_seq // 2, None) is None


async def test_what_lies_beside_the_buffers_on_the_host_is_small_and_positive(shop: Workshop, demo_model: Path) -> None:
    await shop.start(demo_model, LaunchOptions(ctx_size=32768))
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
    model = scripted_model("A few words.", n_ctx=4096)
    quiet = shop.launch(model, LaunchOptions())
    usual = await shop.slot_lines(quiet)
    asked = shop.launch(model, LaunchOptions())
    asked = replace(asked, argv=asking(asked.argv, shop.flags))
    assert await shop.slot_lines(asked) == usual > 0


async def test_a_store_that_fails_fails_nobody(shop: Workshop, demo_model: Path) -> None:
    shop.database.close()
    with capture_logs() as said:
        info = await shop.start(demo_model, LaunchOptions(ctx_size=4096))
        shop.learning.flush()
    assert info.footprint is not None
    assert [line["event"] for line in said] == ["store_unreadable", "start_not_kept"]


def test_values_of_the_environment_are_kept_as_hashes_alone(demo_model: Path, tmp_path: Path) -> None:
    options = LaunchOptions(env={"HF_TOKEN": "hf_secret"})
    launch = build_launch("llama-server", str(demo_model), "/x.sock", "a", options, ModelFacts())
    intent = intent_of(open_model(demo_model).header, launch, options, HOST_BACKENDS)
    assert "HF_TOKEN=" in str(intent.settings)
    assert "hf_secret" not in str(intent.settings)
    assert intent.estimated is None


def test_an_engine_with_devices_that_nobody_planned_is_asked_every_time(demo_model: Path) -> None:
    launch = build_launch("llama-server", str(demo_model), "/x.sock", "a", LaunchOptions(), ModelFacts())
    intent = intent_of(open_model(demo_model).header, launch, LaunchOptions(), ("cpu", "cuda"))
    assert not intent.fixed
    assert intent.estimated is None
