"""The kernel's files, in folders made like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.devices.sysfs import parse_cards
from supervisor.errors import ProfileInvalid
from supervisor.probe.files import drm_cards, kfd_nodes, memory_limits
from supervisor.probe.profiles import load_profile, profile_names

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_an_amd_card(tmp_path: Path) -> None:
    device = "devices/pci0000:00/0000:03:00.0"
    write(tmp_path, {
        f"{device}/vendor": "0x1002\n",
        f"{device}/mem_info_vram_total": f"{24 * GIB}\n",
        f"{device}/mem_info_vram_used": f"{GIB}\n",
        f"{device}/hwmon/hwmon3/temp1_input": "51000\n",
        f"{device}/gpu_metrics": "\x78\x00\x01\x03 and more",
        "class/kfd/kfd/topology/nodes/0/properties": "simd_count 0\n",
        "class/kfd/kfd/topology/nodes/0/gpu_id": "0\n",
        "class/kfd/kfd/topology/nodes/1/properties": "simd_count 192\nlocation_id 768\ndomain 0\n",
        "class/kfd/kfd/topology/nodes/1/gpu_id": "26967\n",
        "class/kfd/kfd/proc/4711/vram_26967": "1048576\n",
        "class/drm/version": "drm 1.1.0\n",
    })  # fmt: skip
    for name in ("card1", "card1-DP-1"):
        (tmp_path / "class/drm" / name).mkdir()
        (tmp_path / "class/drm" / name / "device").symlink_to(tmp_path / device)
    (gpu,) = parse_cards(drm_cards(tmp_path), kfd_nodes(tmp_path))
    assert (gpu.pci, gpu.total_bytes, gpu.free_bytes) == ("0000:03:00.0", 24 * GIB, 23 * GIB)
    assert (gpu.temperature_c, gpu.order, gpu.processes, gpu.shares_host) == (51, 0, {4711: 1048576}, False)


def test_no_cards(tmp_path: Path) -> None:
    assert drm_cards(tmp_path) == []
    assert kfd_nodes(tmp_path) == []


def test_limits_of_all_groups_above_us(tmp_path: Path) -> None:
    write(tmp_path, {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.current": "10\n",
        "sys/fs/cgroup/a/memory.max": "1000\n",
        "sys/fs/cgroup/a/memory.current": "20\n",
        "sys/fs/cgroup/a/memory.stat": "inactive_file 5\n",
    })  # fmt: skip
    found = list(memory_limits(tmp_path / "proc", tmp_path / "sys"))
    assert [(group.limit, group.usage) for group in found] == [("max\n", "10\n"), ("1000\n", "20\n")]
    assert found[1].stat == "inactive_file 5\n"


def test_a_container_of_version_1_sees_its_group_as_the_root(tmp_path: Path) -> None:
    write(tmp_path, {
        "proc/self/cgroup": "4:memory:/docker/abc\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "20\n",
    })  # fmt: skip
    assert [group.limit for group in memory_limits(tmp_path / "proc", tmp_path / "sys")] == ["1000\n"]


def test_the_profiles_that_come_with_the_program() -> None:
    names = profile_names()
    assert {"1x8gb", "1x24gb", "2x24gb", "1x80gb", "8x141gb", "mac-64gb", "apu-128gb", "laptop-16gb"} == set(names)
    machines = {name: load_profile(name) for name in names}
    assert len(machines["8x141gb"].devices) == 8
    assert machines["laptop-16gb"].devices == ()
    assert [device.shares_host for device in machines["mac-64gb"].devices] == [True]
    page = (Path(__file__).parents[2] / "docs/devices.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in names)


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"host": {"total": "8 GiB"}, "devices": [{"name": "Vulkan0", "total": "4 GiB"}]}')
    assert load_profile(str(path)).devices[0].backend == "vulkan"
    path.write_text("host: {total: 8 GiB, free: 1}")
    with pytest.raises(ProfileInvalid, match=r"mine\.json: host: there is no key free"):
        load_profile(str(path))
    path.write_text("{")
    with pytest.raises(ProfileInvalid, match=r"mine\.json is neither YAML nor JSON: line 1: "):
        load_profile(str(path))
    with pytest.raises(ProfileInvalid, match="there are 1x24gb, "):
        load_profile("3x24gb")
