"""The engine's account of its buffers.

Read from logs that llama-server b11434 wrote (`logs/`, without the lines about the header), and from lines in the form
of its source where no such device is at hand.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.footprint import (
    AccountReader,
    Card,
    DeviceFootprint,
    Footprint,
    asking,
    is_asking,
    renamed,
)

LOGS = Path(__file__).parent / "logs"
MIB = 1 << 20


def log(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text("utf-8").splitlines()


def mib(size: float) -> int:
    return round(size * MIB)


def read_account(lines: Iterable[str]) -> Footprint | None:
    reader = AccountReader()
    for line in lines:
        reader.feed(line)
    return reader.footprint()


def account(*lines: str) -> Footprint:
    found = read_account(lines)
    assert found is not None
    return found


def test_two_workers_are_two_devices() -> None:
    found = account(*log("two-workers"))
    assert found.devices == (
        DeviceFootprint("RPC0", mib(37.59), mib(20), 0, mib(35.55), lazy_bytes=mib(35.55)),
        DeviceFootprint("RPC1", mib(30.55), mib(12), 0, mib(26.54), lazy_bytes=mib(26.54)),
        DeviceFootprint("CPU", mib(8), 0, 0, mib(26.07), mib(0.02), lazy_bytes=mib(26.07)),
    )
    assert (found.n_ctx, found.n_ctx_seq, found.n_seq) == (4096, 4096, 1)
    assert [(card.name, card.id, card.free_bytes) for card in found.cards] == [
        ("RPC0", "unknown id", 24105 * MIB),
        ("RPC1", "unknown id", 24105 * MIB),
    ]


def test_drafting_with_the_models_own_blocks_adds_a_context() -> None:
    found = account(*log("draft-mtp"))
    host = found.on("CPU")
    assert host.kv_bytes == mib(8) + mib(4)
    assert host.recurrent_bytes == mib(12.42)
    assert host.compute_bytes == mib(22.09) + mib(10.01)  # the draft's was reserved twice and is held once
    assert host.output_bytes == mib(0.06) * 2
    assert host.draft_bytes == 0
    assert found.n_ctx == 4096


def test_a_second_model_is_a_draft() -> None:
    host = account(*log("draft-model")).on("CPU")
    main = DeviceFootprint("CPU", mib(76.14), mib(32), 0, mib(13.52), mib(0.06))
    assert host.draft_bytes == main.total_bytes
    assert host.total_bytes == 2 * main.total_bytes
    assert host.weights_bytes == mib(76.14)


def test_a_log_at_the_usual_level_has_no_account() -> None:
    usual = [line for line in log("two-workers") if " srv " in line]
    assert read_account(usual) is None


@pytest.mark.parametrize(
    ("kind", "device"),
    [
        ("CPU", "CPU"),
        ("CPU_Mapped", "CPU"),
        ("CPU_REPACK", "CPU"),
        ("AMX", "CPU"),
        ("CUDA_Host", "CPU"),
        ("ROCm_Host", "CPU"),
        ("Vulkan_Host", "CPU"),
        ("CUDA0", "CUDA0"),
        ("CUDA12", "CUDA12"),
        ("Vulkan1", "Vulkan1"),
        ("MTL0_Mapped", "MTL0"),
        ("MTL0_Private", "MTL0"),
        ("RPC0[10.0.0.7:50052]", "RPC0[10.0.0.7:50052]"),
    ],
)
def test_a_buffer_type_belongs_to_a_device(kind: str, device: str) -> None:
    found = account(f"load_tensors: {kind:>12} model buffer size =  1234.56 MiB")
    assert found.on(device).weights_bytes == mib(1234.56)


def test_a_worker_with_two_cards_has_two_devices_under_one_address() -> None:
    lines = [
        "0.1 I cmn  common_param:   - RPC0    : 10.0.0.7:50052 (16000 MiB, 15000 MiB free)",
        "0.1 I cmn  common_param:   - RPC1    : 10.0.0.7:50052 (16000 MiB, 15000 MiB free)",
        "0.2 I llama_prepare_model_devices: using device RPC1 (10.0.0.7:50052) (unknown id) - 15000 MiB free",
        "0.3 I llama_kv_cache: RPC1[10.0.0.7:50052] KV buffer size =    12.00 MiB",
    ]
    assert account(*lines).on("RPC1").kv_bytes == mib(12)


def test_several_caches_of_a_context_add_up() -> None:
    found = account(*["llama_kv_cache:      CUDA0 KV buffer size =     3.00 MiB"] * 2)
    assert found.on("CUDA0").kv_bytes == mib(6)


def test_deepseek_states_are_recurrent() -> None:
    found = account("llama_kv_cache_dsv4_state:      CUDA0 DSV4 CSA state buffer size =     3.25 MiB")
    assert found.on("CUDA0").recurrent_bytes == mib(3.25)


PROJECTED = [
    "clip_ctx: CLIP using CUDA1 backend",
    "load_hparams: model size:         900.00 MiB",
    "reserve_compute_meta:      CUDA1 compute buffer size =   700.00 MiB",
]
LOADED = ["llama_model_loader: loaded meta data with 3 key-value pairs", "llama_context: constructing llama_context"]
REAL = [
    "clip_ctx: CLIP using CUDA0 backend",
    "load_hparams: model size:         811.82 MiB",
    "load_hparams: metadata size:      0.18 MiB",
    "reserve_compute_meta:      CUDA0 compute buffer size =   100.00 MiB",
    "reserve_compute_meta:      CUDA0 compute buffer size =   120.25 MiB",
    "reserve_compute_meta:        CPU compute buffer size =     2.00 MiB",
]


def test_a_projector_is_on_its_device_and_what_it_was_projected_to_take_does_not_count() -> None:
    found = account(*PROJECTED, *LOADED, *REAL)
    assert found.on("CUDA0").projector_bytes == mib(811.82) + mib(120.25)
    assert found.on("CPU").projector_bytes == mib(2)
    assert found.on("CUDA1").total_bytes == 0


def test_a_projector_for_images_and_one_for_sound_add_up() -> None:
    found = account(*LOADED, *REAL, *REAL)
    assert found.on("CUDA0").projector_bytes == 2 * (mib(811.82) + mib(120.25))


def test_contexts_that_the_fit_pass_imagines_do_not_count() -> None:
    imagined = [*LOADED, "sched_reserve:      CUDA0 compute buffer size =   999.00 MiB"]
    fit = ["common_params_fit_impl: will leave 100 >= 90 MiB of free device memory, no changes needed"]
    real = [*LOADED, "sched_reserve:      CUDA0 compute buffer size =     5.00 MiB"]
    assert account(*imagined, *fit, *real).on("CUDA0").total_bytes == mib(5)


def test_mapped_and_pinned_memory_and_empty_buffers_are_not_the_processes_own() -> None:
    host = account(
        "load_tensors:   CPU_Mapped model buffer size =   100.00 MiB",
        "load_tensors:    CUDA_Host model buffer size =    10.00 MiB",
        "load_tensors:   CPU_REPACK model buffer size =     1.00 MiB",
        "sched_reserve:        CPU compute buffer size =     7.00 MiB",
    ).on("CPU")
    assert host.total_bytes - host.lazy_bytes == mib(1)


def test_cards_and_devices_can_be_called_otherwise() -> None:
    line = "llama_prepare_model_devices: using device CUDA0 (NVIDIA H200) (0000:0f:00.0) - 143000 MiB free"
    found = account(line, "llama_kv_cache:      CUDA0 KV buffer size =     3.00 MiB")
    assert found.cards == (Card("CUDA0", "NVIDIA H200", "0000:0f:00.0", 143000 * MIB),)
    other = renamed(found, {"CUDA0": "CUDA5"})
    assert other.used_bytes == {"CUDA5": mib(3), "CPU": 0}
    assert other.cards == (Card("CUDA5", "NVIDIA H200", "0000:0f:00.0", 143000 * MIB),)


def test_an_engine_is_asked_for_its_account_unless_somebody_chose_the_level() -> None:
    flags = frozenset({"-lv", "--verbosity"})
    assert is_asking(asking(("server", "-m", "x"), flags))
    for chosen in (("-v",), ("--verbosity", "1"), ("--verbosity=1",), ("-lv", "5")):
        assert asking(("server", *chosen), flags) == ("server", *chosen)
    assert asking(("server",), frozenset({"--model"})) == ("server",)
    assert not is_asking(("server",))


@given(st.permutations(range(len(log("two-workers")))), st.data())
def test_other_lines_between_change_nothing(order: list[int], data: st.DataObject) -> None:
    """A real log, with its other lines anywhere in between."""
    lines = log("two-workers")
    told = [line for line in lines if "MiB" in line or "llama_context:" in line or "loaded meta" in line]
    noise = [lines[index] for index in order if lines[index] not in told]
    seed = data.draw(st.integers(0, 1 << 30))
    rng = random.Random(seed)
    mixed = list(told)
    for line in noise:
        mixed.insert(rng.randrange(len(mixed) + 1), line)
    assert read_account(mixed) == read_account(lines)


SIZES = st.integers(0, 10**8).map(lambda hundredths: hundredths / 100)
KINDS = st.sampled_from(["CPU", "CPU_Mapped", "CUDA0", "CUDA1", "CUDA_Host", "RPC0[127.0.0.1:50052]"])
PARTS = st.sampled_from(["model", "KV", "RS", "output", "compute"])


@given(st.dictionaries(st.tuples(KINDS, PARTS), SIZES, min_size=1), st.randoms())
def test_the_order_of_a_contexts_buffers_does_not_matter_and_nothing_is_lost(
    sizes: dict[tuple[str, str], float], rng: random.Random
) -> None:
    lines = [f"f: {kind} {part} buffer size = {size:8.2f} MiB" for (kind, part), size in sizes.items()]
    card = "using device RPC0 (127.0.0.1:50052) (unknown id) - 1 MiB free"
    shuffled = rng.sample([*lines, card], len(lines) + 1)
    found = account(*shuffled)
    assert found == account(*lines, card)
    assert sum(found.used_bytes.values()) == sum(mib(size) for size in sizes.values())
    assert all(0 <= device.lazy_bytes <= device.total_bytes for device in found.devices)


PIECES = st.sampled_from([
    *("llama_context: ", "constructing llama_context", "n_ctx = ", "KV", "compute", " buffer size = ", "MiB"),
    *("RPC", "RPC0[", "]", "CPU", "using device ", " (", ") ", " - ", " MiB free", "999999999999", "-1", "1e9"),
    *("llama_model_loader: loaded meta data", "CLIP using ", " backend", "load_hparams: model size:", "DSV4 x state"),
    *("common_params_fit", "reserve_compute_meta: ", "  - RPC7 : ", "inf", "\x00", "٣", "9" * 30),
])


@given(st.lists(st.lists(PIECES | st.text(max_size=5), max_size=10).map("".join), max_size=20))
def test_no_line_is_too_strange(lines: list[str]) -> None:
    reader = AccountReader()
    for line in lines:
        reader.feed(line)
        found = reader.footprint()
        assert found is None or found.devices[-1].name == "CPU"


def forged(numbers: int, kind: str = "CUDA{0}", before: str = "x: loaded") -> list[str]:
    return [before.format(number) for number in range(numbers)] + [
        f"x: {kind.format(number)} model buffer size = 1.00 MiB" for number in range(numbers)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        forged(100),
        forged(100_000),
        forged(20_000, "RPC{0}[e]", "  - RPC{0} : e (1 MiB, 1 MiB free)"),
        forged(900, "RPC{0}[e]", "  - RPC{0} : e (1 MiB, 1 MiB free)"),
        forged(900, "Meta({0}," + "a," * 400 + ")"),
        [*log("two-workers"), *forged(65, "CPU", "using device CUDA{0} (a) - 1 MiB free")],
        [*log("two-workers"), *["sched_reserve: CUDA0 compute buffer size = 1.00 MiB"] * 1024],
    ],
    ids=["devices", "lines", "workers", "a few workers", "names in one line", "cards", "the same device"],
)
def test_an_account_that_no_machine_could_have_is_none(lines: list[str]) -> None:
    """A model's name may hold such lines; they were read in quadratic time."""
    assert read_account(lines) is None


def test_sixteen_devices_are_an_account() -> None:
    names = ",".join(f"CUDA{number}" for number in range(16))
    found = account(*forged(16), *(f"x: Meta({names}) {part} buffer size = 1.00 MiB" for part in ("KV", "compute")))
    assert {device.total_bytes for device in found.devices if device.name != "CPU"} == {mib(3)}


def test_figures_of_an_account_fit_into_any_json() -> None:
    found = account(*(f"x: CPU_{number} model buffer size = {'9' * 9} MiB" for number in range(1000)))
    assert found.used_bytes["CPU"] < 1 << 63
