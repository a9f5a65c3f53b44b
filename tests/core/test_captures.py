"""Every parser on what programs were reported to print on hardware that is not at hand (`captures/SOURCES.md`)."""

from __future__ import annotations

import pytest

from supervisor.core.devices.amd import parse_amd_smi, parse_rocm_smi
from supervisor.core.devices.engine_list import MIB, parse_device_list
from supervisor.core.engine_output.failures import CODES, FINAL, MEANINGS, OF_LAUNCH, cause_of
from supervisor.core.engine_output.footprint import AccountReader, Card, Footprint
from supervisor.core.text.plaintext import plain
from supervisor.llamacpp.machine import parse_driver_cuda
from tests.core.captures import HERE, capture, sources

LISTS = {
    "list-cuda-two.txt": [
        ("CUDA0", "cuda", "NVIDIA GeForce RTX 3080 Ti", 11909, 11650),
        ("CUDA1", "cuda", "NVIDIA RTX PRO 4000 Blackwell SFF Edition", 24026, 23795),
    ],
    "list-vulkan.txt": [("Vulkan0", "vulkan", "NVIDIA GeForce RTX 2060", 6144, 5136)],
    "list-metal.txt": [("Metal", "metal", "Apple M4 Max", 98304, 98303)],
    "list-none.txt": [],
}
DRIVERS = {"smi-610.txt": (13, 3), "smi-gb10.txt": (13, 0), "smi-535.txt": (12, 2), "smi-396.txt": None}
TOOLS = ("amd-smi-7800.json", "rocm-smi-7900.json")
FAILURES = {  # code, device, bytes that could not be had
    "oom-cuda.log": ("out_of_memory", "CUDA0", 151851674624),
    "oom-cuda-compute.log": ("out_of_memory", "CUDA0", 292926534144),
    "oom-rocm.log": ("out_of_memory", "ROCm0", 866125824),
    "oom-rocm-last.log": ("out_of_memory", "ROCm0", None),
    "oom-host.log": ("out_of_memory", "CPU", 437944320),
    "oom-vulkan.log": ("out_of_memory", None, 118497280),
    "oom-vulkan-limit.log": ("out_of_memory", "Vulkan0", 2166360064),
    "oom-metal.log": ("out_of_memory", None, None),
    "oom-metal-older.log": ("out_of_memory", None, None),
    "oom-sycl.log": ("out_of_memory", None, 2303168640),
    "oom-sycl-runtime.log": ("out_of_memory", None, None),
    "oom-sycl-older.log": ("out_of_memory", None, None),
    "oom-jetson.log": ("out_of_memory", None, None),
    "lost-jetson.log": ("device_lost", None, None),
    "lost-vulkan.log": ("device_lost", None, None),
    "lost-sycl.log": ("device_lost", None, None),
    "lost-cuda.log": ("device_lost", None, None),
    "unsupported-cuda.log": ("device_unsupported", None, None),
    "unsupported-rocm.log": ("device_unsupported", None, None),
    "unsupported-rocblas.log": ("device_unsupported", None, None),
    "worker.log": ("rpc_worker_lost", None, None),
}
HARMLESS = ("retry-cuda.log", "pinned-vulkan.log")
CARDS = {
    "card-rocm.log": Card("ROCm0", "AMD Radeon Graphics", "0000:c6:00.0", 125192 * MIB),
    "card-rocm-older.log": Card("ROCm0", "Radeon 8060S Graphics", "unknown id", 98082 * MIB),
    "card-vulkan.log": Card("Vulkan0", "AMD Radeon RX 7700 XT (RADV NAVI32)", "0000:03:00.0", 12059 * MIB),
    "card-metal-amd.log": Card("Metal", "AMD Radeon VII", "unknown id", 16368 * MIB),
}
LOADS = {  # MiB by device and part
    "load-cuda-seven.log": {
        f"CUDA{number}": {"weights": size}
        for number, size in enumerate((48928.09, 70752.48, 71680.09, 52215.30, 45108.64, 46036.25, 28426.68))
    },
    "load-cuda-colours.log": {"CUDA0": {"kv": 182.75}, "CPU": {"output": 0.49}},
    "load-rocm-four.log": {
        "ROCm0": {"weights": 27022.95},
        "ROCm1": {"weights": 26590.20},
        "ROCm2": {"weights": 26590.20},
        "ROCm3": {"weights": 23747.25},
        "CPU": {"weights": 251.85},
    },
    "load-rocm-tensor.log": {"CPU": {"output": 3.79}},  # this build does not say among which devices it is split
    "load-rpc-older.log": {
        "RPC[172.20.10.59:50195]": {"weights": 8973.24, "compute": 2218.00},
        "CPU": {"compute": 30.01},
    },
    "load-metal.log": {"Metal": {"kv": 11440.00, "compute": 307.00}, "CPU": {"output": 2.32, "compute": 65.01}},
    "load-metal-mapped.log": {"MTL0": {"weights": 14803.73}, "CPU": {"weights": 644.14}},
    "load-sycl-two.log": {"SYCL1": {"weights": 12867.08}, "CPU": {"weights": 20183.74}},
    "load-sycl-swa.log": {"SYCL0": {"kv": 120.00, "compute": 563.39}, "CPU": {"compute": 87.14}},
    "load-vulkan-older.log": {"Vulkan0": {"kv": 19200.00, "compute": 1174.00}, "CPU": {"compute": 18.01}},
}
PARTS = ("weights", "kv", "recurrent", "compute", "output", "projector", "draft")


def test_every_capture_has_its_source_and_is_read_by_a_test() -> None:
    files = {path.name for path in HERE.iterdir() if path.is_file()} - {"SOURCES.md", "__init__.py"}
    read = {*LISTS, *DRIVERS, *TOOLS, *FAILURES, *HARMLESS, *CARDS, *LOADS, "load-rpc-rocm.log"}
    assert files == set(sources()) == read


@pytest.mark.parametrize("name", LISTS)
def test_the_engines_lists(name: str) -> None:
    found = parse_device_list(capture(name))
    assert [
        (one.name, one.backend, one.description, one.total_bytes // MIB, one.free_bytes // MIB) for one in found
    ] == LISTS[name]


@pytest.mark.parametrize("name", DRIVERS)
def test_the_drivers_cuda_version(name: str) -> None:
    assert parse_driver_cuda(capture(name)) == DRIVERS[name]


def test_amds_tools() -> None:
    (newer,) = parse_amd_smi(capture("amd-smi-7800.json"))
    assert (newer.name, newer.pci, newer.uuid) == ("AMD Radeon RX 7800 XT", "0000:03:00.0", "GPU-4162405e51bb99b0")
    assert newer.total_bytes is None
    (older,) = parse_rocm_smi(capture("rocm-smi-7900.json"))
    assert (older.name, older.total_bytes) == ("Radeon RX 7900 XT", 21458059264)
    assert (older.free_bytes, older.pci, older.uuid) == (21458059264 - 27856896, None, None)


@pytest.mark.parametrize("name", FAILURES)
def test_causes(name: str) -> None:
    found = cause_of(capture(name).splitlines(), code=None, signal=6)
    assert found is not None
    assert (found.code, found.device, found.lacking) == FAILURES[name]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_an_engine_gets_over_is_no_cause(name: str) -> None:
    said = capture(name).splitlines()
    assert cause_of(said, code=1) is None
    later = "error loading model: missing tensor 'blk.0.attn_q.weight'"
    found = cause_of([*said, later], code=1)
    assert found is not None
    assert found.code == "model_file_broken"


def test_memory_that_runs_out_again_is_a_cause() -> None:
    """The second try without pipeline parallelism needs less, and may fail all the same."""
    again = "ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 1073741824"
    found = cause_of([*capture("retry-cuda.log").splitlines(), again], code=1)
    assert found is not None
    assert (found.device, found.lacking) == ("CUDA1", 1 << 30)


def test_every_code_has_a_meaning() -> None:
    assert set(CODES) == set(MEANINGS)
    assert set(CODES) >= FINAL | OF_LAUNCH


def account(text: str) -> tuple[AccountReader, Footprint | None]:
    reader = AccountReader()
    for line in plain(text).splitlines():
        reader.feed(line)
    return reader, reader.footprint()


@pytest.mark.parametrize("name", LOADS)
def test_accounts(name: str) -> None:
    _, found = account(capture(name))
    assert found is not None
    told = {
        device.name: {part: size for part in PARTS if (size := getattr(device, f"{part}_bytes"))}
        for device in found.devices
        if device.total_bytes
    }
    assert told == {
        device: {part: round(size * MIB) for part, size in parts.items()} for device, parts in LOADS[name].items()
    }


def test_the_contexts_of_accounts() -> None:
    _, mapped = account(capture("load-metal-mapped.log"))
    _, two = account(capture("load-sycl-two.log"))
    assert mapped is not None
    assert two is not None
    assert (mapped.n_ctx, mapped.n_ctx_seq, mapped.n_seq) == (131072, 131072, 1)
    assert (two.n_ctx, two.n_ctx_seq, two.n_seq) == (131072, 65536, 2)


@pytest.mark.parametrize("name", CARDS)
def test_cards(name: str) -> None:
    _, found = account(capture(name) + "load_tensors: CPU model buffer size = 1.00 MiB\n")
    assert found is not None
    assert found.cards == (CARDS[name],)


def test_a_worker_is_known_from_the_list_before() -> None:
    """An APU may have more free than it has in all: other memory of the host is counted as free."""
    buffer = "load_tensors: RPC0[10.0.69.2:50052] model buffer size = 1.00 MiB\n"
    _, found = account(capture("load-rpc-rocm.log") + buffer)
    assert found is not None
    assert found.used_bytes == {"RPC0": MIB, "CPU": 0}


def test_tensors_split_among_devices_are_on_each() -> None:
    _, found = account("llama_kv_cache: Meta(CUDA0,CUDA1) KV buffer size =  4096.00 MiB\n")
    assert found is not None
    assert found.used_bytes == {"CUDA0": 4096 * MIB, "CUDA1": 4096 * MIB, "CPU": 0}
