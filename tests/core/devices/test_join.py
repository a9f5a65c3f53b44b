"""One device, all its names; and an engine that sees exactly what was chosen for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices import Device, Host, names_in_child, rpc_endpoints, visible_env
from supervisor.core.devices.engine_list import MIB, Listed, parse_device_list
from supervisor.core.devices.join import DriverReport, Joined, is_known, join, listing_env
from supervisor.core.devices.nvidia import parse_nvml
from supervisor.core.devices.physical import APPLE, Gpu
from supervisor.core.devices.unlisted import guess_list, unused_gpus
from supervisor.core.devices.visibility import cuda_visible, hip_visible, vulkan_visible
from supervisor.core.devices.vulkan import parse_vulkaninfo
from tests.core.devices.support import GIB, amd_gpus, captured, nvidia_gpus

HOST = Host(64 * GIB, 60 * GIB)
TWO = parse_nvml(captured("nvml.json"))  # a 4090 at 01:00.0, a 3090 at 41:00.0


def listed(*names: str, description: str = "NVIDIA H200", total: int = 24 * GIB) -> list[Listed]:
    return list(parse_device_list("\n".join(f"  {n}: {description} ({total // MIB} MiB, 100 MiB free)" for n in names)))


def joined(lines: list[Listed], found: DriverReport, **env: str) -> Joined:
    return join(lines, found, env, HOST)


def test_the_list_is_asked_for_in_pci_order() -> None:
    uuids = ",".join(gpu.uuid or "" for gpu in TWO)
    assert listing_env(DriverReport(TWO), {}) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuids}
    assert listing_env(DriverReport(TWO), {"CUDA_VISIBLE_DEVICES": "1"}) == {}  # who knows which
    assert listing_env(DriverReport(TWO), {"CUDA_VISIBLE_DEVICES": ""})["CUDA_VISIBLE_DEVICES"] == ""
    assert listing_env(DriverReport(amd_gpus((1, 0))), {"HIP_VISIBLE_DEVICES": "1"}) == {
        "ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0",
    }  # fmt: skip
    assert listing_env(DriverReport(), {}) == {}


def test_cuda_devices_get_their_physical_identity() -> None:
    lines = [*listed("CUDA0", description=TWO[0].name), *listed("CUDA1", description=TWO[1].name)]
    first, second = joined(lines, DriverReport(TWO)).devices
    assert (first.index, first.uuid, first.pci) == (0, TWO[0].uuid, "0000:01:00.0")
    assert (second.index, second.selector, second.processes) == (1, TWO[1].uuid, {4711: 209715200})
    assert second.compute_capability == "8.6"
    # the total is the engine's, free memory the driver's: the engine itself held a context
    assert (second.total_bytes, second.free_bytes) == (24 * GIB, TWO[1].free_bytes)


def test_free_is_never_more_than_the_total() -> None:
    (device,) = joined(listed("CUDA0", total=GIB), DriverReport(nvidia_gpus(1))).devices
    assert device.free_bytes == device.total_bytes == GIB


def test_a_mask_keeps_the_physical_number() -> None:
    (device,) = joined(listed("CUDA0"), DriverReport(nvidia_gpus(4)), CUDA_VISIBLE_DEVICES="2").devices
    assert (device.name, device.index) == ("CUDA0", 2)


def test_names_decide_where_the_mask_is_not_sure() -> None:
    found = DriverReport(TWO)
    told = joined(listed("CUDA0", description="NVIDIA GeForce RTX 3090"), found, CUDA_VISIBLE_DEVICES="1")
    assert told.devices[0].uuid == TWO[1].uuid
    assert told.problems == ()


def test_what_cannot_be_told_stays_unknown() -> None:
    alike = (*nvidia_gpus(2), replace(TWO[0], index=2))
    told = joined(listed("CUDA0"), DriverReport(alike), CUDA_VISIBLE_DEVICES="1")
    assert (told.devices[0].uuid, told.devices[0].selector, told.devices[0].index) == (None, None, None)
    assert told.devices[0].total_bytes == 24 * GIB
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in told.problems[0].message


def test_one_gpu_is_not_two_devices() -> None:
    told = joined(listed("CUDA0", "CUDA1"), DriverReport(nvidia_gpus(1)))  # by GGML_CUDA_DEVICES
    assert [device.uuid for device in told.devices] == [None, None]
    assert told.problems


def test_hip_devices_are_told_by_place_and_size() -> None:
    lines = listed("ROCm0", "ROCm1", description="AMD Radeon RX 7900 XTX")
    first, second = joined(lines, DriverReport(amd_gpus((1, 0)))).devices
    assert (first.index, first.selector, second.index, second.selector) == (1, "0", 0, "1")
    odd = joined(listed("ROCm0", "ROCm1", total=8 * GIB), DriverReport(amd_gpus((1, 0))))
    assert [device.index for device in odd.devices] == [None, None]
    assert odd.problems


def test_vulkan_devices_are_told_by_vulkans_own_list() -> None:
    records = parse_vulkaninfo(captured("vulkaninfo.txt"))
    lines = [
        *listed("Vulkan0", description="AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)"),
        *listed("Vulkan1", description="AMD Radeon RX 7900 XTX (RADV NAVI31)"),
        *listed("Vulkan2", description="NVIDIA GeForce RTX 4090"),
    ]
    small, card, nvidia = joined(lines, DriverReport((*amd_gpus((0, 1, 2)), *TWO), records)).devices
    assert (small.selector, small.shares_host, small.pci) == ("1", True, None)
    assert (card.selector, card.pci, card.shares_host) == ("3", "0000:03:00.0", False)
    assert (nvidia.selector, nvidia.uuid) == ("4", TWO[0].uuid)
    unasked = joined(lines, DriverReport(TWO))
    assert [device.selector for device in unasked.devices] == [None] * 3
    assert unasked.problems == ()


def test_apples_memory_is_the_hosts() -> None:
    (device,) = joined(
        listed("MTL0", description="Apple M2 Max"), DriverReport((Gpu(APPLE, 0, "Apple M2 Max"),))
    ).devices
    assert device.shares_host
    assert joined(listed("MTL0"), DriverReport()).devices[0].shares_host


def test_a_worker_in_the_hosts_memory_is_recognised() -> None:
    line = "  RPC0: {} ({} MiB, 1 MiB free)"
    near, far, gpu = (
        parse_device_list(line.format(where, size // MIB))[0]
        for where, size in [("127.0.0.1:50052", 64 * GIB), ("10.0.0.2:50052", 64 * GIB), ("127.0.0.1:50053", 8 * GIB)]
    )
    shared = [joined([one], DriverReport()).devices[0].shares_host for one in (near, far, gpu)]
    assert shared == [True, False, False]


def test_whether_a_driver_tells_what_is_free() -> None:
    gpus = nvidia_gpus(1)
    (device,) = joined(listed("CUDA0"), DriverReport(gpus)).devices
    assert is_known(device, gpus)
    assert not is_known(device, [replace(gpus[0], free_bytes=None)])
    assert not is_known(replace(device, uuid=None, pci=None), gpus)


def test_without_an_engine_the_drivers_gpus_are_named() -> None:
    lines = guess_list(DriverReport((*TWO, *amd_gpus((0,)))), {"CUDA_VISIBLE_DEVICES": TWO[1].uuid or ""})
    assert next((one.name, one.description) for one in lines) == ("CUDA0", "NVIDIA GeForce RTX 3090")


def test_gpus_that_the_engine_cannot_use_are_a_problem() -> None:
    (problem,) = unused_gpus(DriverReport(TWO), (), {})
    assert "--backend cuda" in problem.message
    assert unused_gpus(DriverReport(TWO), (), {"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert unused_gpus(DriverReport(TWO), joined(listed("CUDA0"), DriverReport(TWO)).devices, {}) == ()


# -- engines that see what was chosen ----------------------------------------------------------------------------------

CUDA = joined(listed("CUDA0", "CUDA1", "CUDA2", "CUDA3"), DriverReport(nvidia_gpus(4))).devices
HIP = joined(listed("ROCm0", "ROCm1", "ROCm2"), DriverReport(amd_gpus((2, 0, 1)))).devices


@given(st.permutations(CUDA), st.integers(1, 4))
def test_an_engine_sees_exactly_the_chosen_cuda_gpus(order: list[Device], count: int) -> None:
    chosen = order[:count]
    seen = cuda_visible(visible_env(chosen, CUDA), nvidia_gpus(4))
    assert [gpu.uuid for gpu in seen.gpus] == [device.uuid for device in chosen]
    assert seen.sure
    assert names_in_child(chosen, CUDA) == tuple(f"CUDA{n}" for n in range(count))


@given(st.permutations(HIP), st.integers(1, 3))
def test_an_engine_sees_exactly_the_chosen_amd_gpus(order: list[Device], count: int) -> None:
    chosen = order[:count]
    seen = hip_visible({"CUDA_VISIBLE_DEVICES": "2", **visible_env(chosen, HIP)}, amd_gpus((2, 0, 1)))
    assert [gpu.pci for gpu in seen.gpus] == [device.pci for device in chosen]
    assert names_in_child(chosen) == tuple(f"ROCm{n}" for n in range(count))


def test_back_ends_without_a_chosen_device_are_hidden() -> None:
    env = visible_env((), (*CUDA, *HIP))
    assert cuda_visible(env, nvidia_gpus(4)).gpus == hip_visible(env, amd_gpus((0, 1))).gpus == ()
    records = parse_vulkaninfo(captured("vulkaninfo.txt"))
    vulkan = replace(CUDA[0], name="Vulkan0", backend="vulkan", selector="4")
    assert vulkan_visible(visible_env(CUDA[:1], (CUDA[0], vulkan)), records) == ()
    assert [one.index for one in vulkan_visible(visible_env([vulkan]), records)] == [4]
    assert visible_env((), ()) == {}


def test_a_back_end_with_an_unknown_device_is_left_alone() -> None:
    unknown = replace(CUDA[2], selector=None)
    assert visible_env([CUDA[3], unknown]) == {}
    assert names_in_child([CUDA[3], unknown]) == ("CUDA3", "CUDA2")


def test_workers_bring_all_of_their_devices() -> None:
    workers = [Device(f"RPC{n}", "rpc", end, 1, 1, endpoint=end) for n, end in enumerate(["a:1", "a:1", "b:1", "c:1"])]
    chosen = [workers[3], workers[1]]
    assert rpc_endpoints(chosen) == ("c:1", "a:1")
    assert names_in_child(chosen, workers) == ("RPC0", "RPC2")
    assert names_in_child([workers[2]], workers) == ("RPC0",)
