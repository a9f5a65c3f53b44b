"""The variables that hide GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices.physical import Gpu
from supervisor.core.devices.visibility import cuda_visible, hip_visible, vulkan_visible
from supervisor.core.devices.vulkan import VulkanDevice
from tests.core.devices.support import amd_gpus, nvidia_gpus

GPUS = nvidia_gpus(4)
MIXED = (*nvidia_gpus(1, "NVIDIA GeForce RTX 3090"), replace(GPUS[1], name="NVIDIA GeForce RTX 4090"))
HALVES = tuple(Gpu("nvidia", 0, "NVIDIA A100 MIG 3g.20gb", uuid=f"MIG-{n}000-aaaa") for n in range(2))


def cuda(mask: str | None, gpus: tuple[Gpu, ...] = GPUS, **env: str) -> list[int]:
    mask_env = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    return [gpu.index for gpu in cuda_visible({**mask_env, **env}, gpus).gpus]


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2,1", [2, 1]),
        (" 3 , 0 ", [3, 0]),
        ("0,2,-1,1", [0, 2]),  # the programming guide's own example
        ("1,7,0", [1]),
        ("NoDevFiles", []),
        ("GPU-2bcd", [2]),
        ("gpu-2bcd", []),
        ("GPU-3bcd3000-0000,0", [3, 0]),
        ("GPU-", []),  # the beginning of all
        ("1,GPU-9", [1]),
        ("1,1,0", [1]),
    ],
)
def test_cudas_mask(mask: str | None, left: list[int]) -> None:
    assert cuda(mask) == left


def test_numbers_are_not_sure_where_cuda_ranks_the_gpus_itself() -> None:
    assert not cuda_visible({"CUDA_VISIBLE_DEVICES": "1"}, MIXED).sure
    assert cuda_visible({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, MIXED).sure
    assert cuda_visible({"CUDA_VISIBLE_DEVICES": "GPU-1bcd"}, MIXED).sure
    assert cuda_visible({"CUDA_VISIBLE_DEVICES": "1"}, GPUS).sure
    assert cuda_visible({}, MIXED).sure
    assert not cuda_visible({"CUDA_VISIBLE_DEVICES": "1,1"}, GPUS).sure


def test_of_mig_instances_a_process_sees_one() -> None:
    cut = (replace(GPUS[0], mig=HALVES), replace(GPUS[1], mig=HALVES[:1]))
    assert [gpu.uuid for gpu in cuda_visible({}, cut).gpus] == ["MIG-0000-aaaa"]
    chosen = cuda_visible({"CUDA_VISIBLE_DEVICES": "MIG-1000,MIG-0000-aaaa"}, cut[:1])
    assert [gpu.uuid for gpu in chosen.gpus] == ["MIG-1000-aaaa"]
    assert chosen.sure
    assert not cuda_visible({}, (GPUS[1], cut[0])).sure


NUMBERS = st.lists(st.integers(0, 3), unique=True)


@given(NUMBERS)
def test_numbers_and_uuids_mean_the_same(numbers: list[int]) -> None:
    by_number = ",".join(map(str, numbers))
    by_uuid = ",".join(GPUS[n].uuid or "" for n in numbers)
    by_beginning = ",".join((GPUS[n].uuid or "")[:6] for n in numbers)
    assert cuda(by_number) == cuda(by_uuid) == cuda(by_beginning) == numbers


@given(NUMBERS, st.sampled_from(["-1", "4", "x", "", "GPU-", "0x1", "MIG-1"]), NUMBERS)
def test_an_invalid_entry_ends_the_list(before: list[int], wrong: str, after: list[int]) -> None:
    mask = ",".join([*map(str, before), wrong, *map(str, after)])
    assert cuda(mask) == before


@given(st.text("0123,- GPUx", max_size=20))
def test_any_mask_leaves_some_of_the_gpus_each_once(mask: str) -> None:
    left = cuda(mask)
    assert len(set(left)) == len(left)
    assert set(left) <= {0, 1, 2, 3}
    hip = hip_visible({"ROCR_VISIBLE_DEVICES": mask, "HIP_VISIBLE_DEVICES": mask}, amd_gpus((0, 1, 2))).gpus
    assert len(set(gpu.index for gpu in hip)) == len(hip)


def test_hip_counts_in_the_runtimes_order() -> None:
    gpus = amd_gpus((2, 0, 1))
    assert [gpu.index for gpu in hip_visible({}, gpus).gpus] == [1, 2, 0]
    assert [gpu.index for gpu in hip_visible({"ROCR_VISIBLE_DEVICES": "2"}, gpus).gpus] == [0]
    by_uuid = {"ROCR_VISIBLE_DEVICES": "GPU-0000000000000002,0"}
    assert [gpu.index for gpu in hip_visible(by_uuid, gpus).gpus] == [2, 1]
    assert not hip_visible({}, tuple(replace(gpu, order=None) for gpu in gpus)).sure


@pytest.mark.parametrize(
    ("env", "left"),
    [
        ({"HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, [0]),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": "2,2,0"}, [2, 0]),
        ({"HIP_VISIBLE_DEVICES": "00"}, []),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"GPU_DEVICE_ORDINAL": "1"}, [0, 1, 2]),
    ],
)
def test_amds_masks(env: dict[str, str], left: list[int]) -> None:
    assert [gpu.index for gpu in hip_visible(env, amd_gpus((0, 1, 2))).gpus] == left


@given(NUMBERS, NUMBERS)
def test_hip_counts_what_the_runtime_left(runtime: list[int], hip: list[int]) -> None:
    env = {"ROCR_VISIBLE_DEVICES": ",".join(map(str, runtime)), "HIP_VISIBLE_DEVICES": ",".join(map(str, hip))}
    valid = []
    for number in hip:
        if number >= len(runtime):
            break
        valid.append(runtime[number])
    expected = valid if hip else runtime
    assert [gpu.index for gpu in hip_visible(env, amd_gpus((0, 1, 2, 3))).gpus] == expected


@pytest.mark.parametrize(
    ("mask", "left"), [("", []), ("1", [1]), ("2,0", [2, 0]), ("1 0", [1, 0]), ("7", []), ("0,x,1", [0])]
)
def test_vulkans_mask(mask: str, left: list[int]) -> None:
    devices = tuple(VulkanDevice(n, f"GPU {n}", "discrete") for n in range(3))
    assert [one.index for one in vulkan_visible({"GGML_VK_VISIBLE_DEVICES": mask}, devices)] == left
