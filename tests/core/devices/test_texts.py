"""What engines, drivers and tools print, read."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices.amd import parse_amd_smi, parse_rocm_smi, with_names
from supervisor.core.devices.apple import parse_apple, working_set
from supervisor.core.devices.engine_list import MIB, backend_of, parse_device_list
from supervisor.core.devices.nvidia import parse_nvml
from supervisor.core.devices.physical import AMD, INTEL, NVIDIA, Gpu, normal_pci
from supervisor.core.devices.sysfs import DrmCard, KfdNode, parse_cards
from supervisor.core.devices.vulkan import VulkanDevice, chosen_by_llama_cpp, parse_vulkaninfo
from tests.core.devices.support import GIB, captured


def test_the_engines_list() -> None:
    first, second, worker = parse_device_list(captured("list-cuda-rpc.txt"))
    assert (first.name, first.backend, first.description) == ("CUDA0", "cuda", "NVIDIA H200")
    assert (second.total_bytes, second.free_bytes) == (143167 * MIB, 90112 * MIB)
    assert (worker.name, worker.backend, worker.endpoint) == ("RPC0", "rpc", "192.168.1.20:50052")


def test_an_older_list_has_the_endpoint_in_the_name() -> None:
    card, worker = parse_device_list(captured("list-older.txt"))
    assert (card.backend, card.endpoint) == ("hip", None)
    assert (worker.name, worker.backend) == ("RPC[192.168.1.20:50052]", "rpc")
    assert worker.endpoint == "192.168.1.20:50052"


def test_brackets_in_a_description_stay() -> None:
    found = parse_device_list(captured("list-intel.txt"))
    assert [one.backend for one in found] == ["openvino", "sycl", "vulkan"]
    assert found[1].description == "Intel(R) Arc(TM) B580 Graphics"


def test_libraries_of_the_processor_are_no_devices() -> None:
    assert [one.name for one in parse_device_list(captured("list-apple.txt"))] == ["MTL0"]
    assert parse_device_list("Available devices:\n  (none)\n") == ()


@pytest.mark.parametrize(
    ("name", "backend"),
    [("CUDA0", "cuda"), ("ROCm1", "hip"), ("MTL0", "metal"), ("Metal", "metal"), ("GPUOpenCL", "opencl")],
)
def test_the_back_end_is_in_the_name(name: str, backend: str) -> None:
    assert backend_of(name) == backend


@given(st.text())
def test_any_list_is_read_without_an_error(text: str) -> None:
    parse_device_list(text)
    parse_vulkaninfo(text)


def test_nvml_is_put_in_pci_order() -> None:
    first, second = parse_nvml(captured("nvml.json"))
    assert (first.index, first.pci, first.name) == (0, "0000:01:00.0", "NVIDIA GeForce RTX 4090")
    assert (second.index, second.compute_capability, second.utilization_percent) == (1, "8.6", 3)
    assert second.temperature_c == 41
    assert second.processes == {4711: 209715200}  # once for computing, once for graphics; one without a figure
    assert not second.shares_host


def test_a_gpu_without_memory_of_its_own() -> None:
    spark = {"name": "NVIDIA GB10", "uuid": "GPU-1", "total": None, "free": None, "pci": "0000000F:01:00.0"}
    (gpu,) = parse_nvml(json.dumps({"gpus": [spark]}))
    assert (gpu.shares_host, gpu.total_bytes, gpu.pci) == (True, None, "000f:01:00.0")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"gpus": 1}'])
def test_what_is_not_the_helpers_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own or ours
        parse_nvml(text)


def test_amds_files() -> None:
    card = DrmCard(
        "0000:03:00.0",
        {
            "vendor": "0x1002\n", "unique_id": "9246aabbccddeeff\n",
            "gpu_busy_percent": "7\n", "temp1_input": "43000\n",
            "mem_info_vram_total": "25753026560\n", "mem_info_vram_used": "753026560\n",
            "mem_info_gtt_total": "33000000000\n", "mem_info_gtt_used": "1\n",
        },
        metrics=bytes([120, 0, 1, 3]),
    )  # fmt: skip
    nodes = [
        KfdNode(0, "cpu_cores_count 16\nsimd_count 0\n"),
        KfdNode(1, "simd_count 192\nlocation_id 768\ndomain 0\n", "26967", {4711: "1048576\n"}),
    ]
    (gpu,) = parse_cards([card], nodes)
    assert (gpu.vendor, gpu.index, gpu.order, gpu.uuid) == (AMD, 0, 0, "GPU-9246aabbccddeeff")
    assert (gpu.total_bytes, gpu.free_bytes) == (25753026560, 25000000000)
    assert (gpu.utilization_percent, gpu.temperature_c, gpu.shares_host) == (7, 43, False)
    assert gpu.processes == {4711: 1048576}


def test_a_processor_with_graphics_counts_what_it_may_map() -> None:
    files = {
        "vendor": "0x1002", "unique_id": "0", "mem_info_vram_total": str(GIB), "mem_info_vram_used": "0",
        "mem_info_gtt_total": str(62 * GIB), "mem_info_gtt_used": str(3 * GIB),
    }  # fmt: skip
    (gpu,) = parse_cards([DrmCard("0000:c4:00.0", files, metrics=bytes([0, 1, 3, 0]))])
    assert gpu.shares_host
    assert (gpu.total_bytes, gpu.free_bytes, gpu.uuid, gpu.order) == (63 * GIB, 60 * GIB, None, None)


def test_an_intel_gpu_within_the_processor_is_known_by_its_place() -> None:
    inside, card = parse_cards([
        DrmCard("0000:03:00.0", {"vendor": "0x8086"}),
        DrmCard("0000:00:02.0", {"vendor": "0x8086"}),
    ])
    assert (inside.vendor, inside.index, inside.shares_host) == (INTEL, 0, True)
    assert (card.index, card.shares_host) == (1, False)


def test_amds_tools() -> None:
    (new,) = parse_amd_smi(captured("amd-smi.json"))
    assert (new.name, new.pci, new.total_bytes) == ("AMD Instinct MI300X", "0000:05:00.0", 196592 * MIB)
    assert new.uuid == "GPU-1fc4c4d2c5f8a6f9"
    assert parse_amd_smi(json.dumps({"gpu_data": json.loads(captured("amd-smi.json"))})) == (new,)
    small, card = parse_rocm_smi(captured("rocm-smi.json"))
    assert (card.name, card.index, card.total_bytes) == ("Radeon RX 7900 XT", 1, 21458059264)
    assert (small.name, small.pci, small.uuid) == ("Raphael", "0000:0d:00.0", None)
    assert card.free_bytes == 21458059264 - 27856896
    figures = {"VRAM Total Memory (B)": "100", "VRAM Total Used Memory (B)": "30"}
    for left_out, found in (("Used", (100, None)), ("Total M", (None, None)), ("nothing", (100, 70))):
        told = {key: text for key, text in figures.items() if left_out not in key}
        [one] = parse_rocm_smi(json.dumps({"card0": told}))
        assert (one.total_bytes, one.free_bytes) == found


def test_tools_lend_their_names_to_the_kernels_gpus() -> None:
    kernel = (Gpu(AMD, 0, "AMD GPU", 5, pci="0000:05:00.0"), Gpu(AMD, 1, "AMD GPU", 6, pci="0000:06:00.0"))
    tools = parse_amd_smi(captured("amd-smi.json"))
    assert [gpu.name for gpu in with_names(kernel, tools)] == ["AMD Instinct MI300X", "AMD GPU"]
    assert with_names(kernel, tools)[0].total_bytes == 5
    assert with_names((), tools) == tools


def test_apples_texts() -> None:
    displays = captured("apple-displays.json")
    (gpu,) = parse_apple(displays, f"hw.memsize: {64 * GIB}\niogpu.wired_limit_mb: 0\n")
    assert (gpu.name, gpu.total_bytes, gpu.shares_host) == ("Apple M2 Max", 48 * GIB, True)
    (raised,) = parse_apple(displays, f"hw.memsize: {64 * GIB}\niogpu.wired_limit_mb: 57344\n")
    assert raised.total_bytes == 56 * GIB
    named_twice = json.dumps({"SPDisplaysDataType": [{"sppci_model": "Apple M4", "_name": "Built-in"}]})
    assert [gpu.name for gpu in parse_apple(named_twice, "")] == ["Apple M4"]
    assert parse_apple(displays.replace("Apple M2 Max", "Intel UHD Graphics 630"), "hw.memsize: 1\n") == ()


@pytest.mark.parametrize(("memory", "mebibytes"), [(8, 5461), (16, 10922), (32, 21845), (64, 49152), (96, 73728)])
def test_the_working_set_of_stock_machines(memory: int, mebibytes: int) -> None:
    """The figures of llama.cpp's `recommendedMaxWorkingSetSize` lines."""
    assert working_set(memory * GIB) // MIB == mebibytes


def test_vulkans_devices() -> None:
    found = parse_vulkaninfo(captured("vulkaninfo.txt"))
    assert [(one.index, one.kind) for one in found] == [
        (0, "cpu"), (1, "integrated"), (2, "discrete"), (3, "discrete"), (4, "discrete"),
    ]  # fmt: skip
    assert [one.pci for one in found] == [None, "0000:0d:00.0", None, "0000:03:00.0", None]
    # the processor is out, and of the card with two drivers the better one stays, in the place of the last
    assert [one.index for one in chosen_by_llama_cpp(found)] == [1, 3, 4]
    assert [one.index for one in chosen_by_llama_cpp(found[:1])] == []


BEST_FIRST = (
    ("MESA_RADV", "AMD_OPEN_SOURCE", "AMD_PROPRIETARY", "MESA_DOZEN", "ELSE"),
    ("INTEL_OPEN_SOURCE_MESA", "INTEL_PROPRIETARY_WINDOWS", "MESA_DOZEN", "ELSE"),
    ("NVIDIA_PROPRIETARY", "MESA_NVK", "MESA_DOZEN", "ELSE"),
)  # by vendor, as ggml-vulkan.cpp has them


@pytest.mark.parametrize(
    ("better", "worse"), [pair for drivers in BEST_FIRST for pair in itertools.combinations(drivers, 2)]
)
def test_of_two_drivers_for_a_card_the_better_one_is_taken(better: str, worse: str) -> None:
    good, bad = (
        VulkanDevice(index, "card", "discrete", uuid="u", driver=f"DRIVER_ID_{name}")
        for index, name in enumerate((better, worse))
    )
    assert chosen_by_llama_cpp((good, bad)) == chosen_by_llama_cpp((bad, good)) == (good,)
    other = replace(bad, uuid="v")
    assert chosen_by_llama_cpp((good, other)) == (good, other)
    assert chosen_by_llama_cpp((replace(good, uuid=None), replace(bad, uuid=None))) != (good,)


def test_without_a_gpu_the_first_that_is_no_processor_is_taken() -> None:
    processor, first, second = (VulkanDevice(n, "x", kind) for n, kind in enumerate(("cpu", "virtual", "other")))
    assert chosen_by_llama_cpp((processor, first, second)) == (first,)
    assert chosen_by_llama_cpp((processor,)) == ()
    gpu = VulkanDevice(3, "x", "integrated")
    assert chosen_by_llama_cpp((first, gpu)) == (gpu,)


def test_vendors_and_identities_of_vulkans_devices() -> None:
    def found(number: str, uuid: str) -> VulkanDevice:
        (one,) = parse_vulkaninfo(f"GPU0:\n\tvendorID = {number}\n\tdeviceUUID = {uuid}\n")
        return one

    uuid = "00000000-0300-0000-0000-000000000000"
    vendors = [found(number, uuid).vendor for number in ("0x1002", "0x8086", "0x10de", "0x1234", "4098")]
    assert vendors == [AMD, INTEL, NVIDIA, None, None]
    assert found("0x1002", uuid).uuid == uuid
    assert found("0x1002", uuid + "0").uuid is None
    assert found("0x1002", "").uuid is None


@pytest.mark.parametrize(
    ("text", "pci"),
    [("00000000:0A:00.0", "0000:0a:00.0"), ("0a:00.1", "0000:0a:00.1"), ("00010000:01:00.0", "10000:01:00.0"),
     ("", None), (None, None), ("platform", None)],
)  # fmt: skip
def test_one_form_for_addresses(text: str | None, pci: str | None) -> None:
    assert normal_pci(text) == pci
