"""Ask the drivers: one function per source, each raising ProbeFailed where it has no answer."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from supervisor.core.devices import Holding, Host
from supervisor.core.devices.amd import AMD_SMI, ROCM_SMI, parse_amd_smi, parse_rocm_smi
from supervisor.core.devices.apple import PROFILER, SYSCTL, parse_apple
from supervisor.core.devices.host import host_memory
from supervisor.core.devices.nvidia import parse_nvml
from supervisor.core.devices.physical import Gpu
from supervisor.core.devices.sysfs import parse_cards
from supervisor.core.devices.vulkan import VulkanDevice, parse_vulkaninfo
from supervisor.probe.files import drm_cards, kfd_nodes, memory_limits
from supervisor.probe.places import Surroundings
from supervisor.probe.tool import ProbeFailed, run_tool

_NVIDIA_FILES = ("nvidiactl", "dxg")  # the driver; Windows' GPUs within its Linux subsystem


def has_nvidia(around: Surroundings) -> bool:
    """Return whether a driver is installed. If it is, silence is a problem."""
    return any((around.devices / name).exists() for name in _NVIDIA_FILES)


def nvidia(around: Surroundings) -> tuple[Gpu, ...]:
    """Return NVIDIA's GPUs, through NVML."""
    return _parsed(parse_nvml, run_tool(around.nvml, around.env, around.limit_s))


def kernel(around: Surroundings) -> tuple[Gpu, ...]:
    """Return AMD's and Intel's GPUs, through the kernel's files."""
    return parse_cards(drm_cards(around.sysfs), kfd_nodes(around.sysfs))


def amd_tools(around: Surroundings) -> tuple[Gpu, ...]:
    """Return AMD's GPUs through `amd-smi`, or `rocm-smi` where that is all there is; none without either."""
    newer, older = around.tool("amd-smi"), around.tool("rocm-smi")
    if newer:
        return _parsed(parse_amd_smi, run_tool([newer, *AMD_SMI], around.env, around.limit_s))
    if older:
        return _parsed(parse_rocm_smi, run_tool([older, *ROCM_SMI], around.env, around.limit_s))
    return ()


def apple(around: Surroundings) -> tuple[Gpu, ...]:
    """Return the Apple GPU."""
    profiler = run_tool(["system_profiler", *PROFILER], around.env, around.limit_s)
    try:
        memory = run_tool(["sysctl", *SYSCTL], around.env, around.limit_s)
    except ProbeFailed:  # systems before macOS 14 have no wired limit, and sysctl fails for the one it does not know
        memory = run_tool(["sysctl", SYSCTL[0]], around.env, around.limit_s)
    return _parsed(lambda text: parse_apple(text, memory), profiler)


def vulkan(around: Surroundings) -> tuple[VulkanDevice, ...]:
    """Return Vulkan's own list through `vulkaninfo`; empty where it is not installed."""
    tool = around.tool("vulkaninfo")
    return parse_vulkaninfo(run_tool([tool, "--summary"], around.env, around.limit_s)) if tool else ()


def host(around: Surroundings) -> Host:
    """Return the machine's memory within our control groups."""
    memory = psutil.virtual_memory()
    return host_memory(memory.total, memory.available, memory_limits(around.procfs, around.sysfs))


def holding(pid: int) -> Holding:
    """Return the host memory of a process of ours: pages of its own, not those of files such as mapped weights."""
    try:
        memory = psutil.Process(pid).memory_info()
    except (psutil.Error, OSError):
        return Holding(pid, host_bytes=0)
    return Holding(pid, host_bytes=int(memory.rss - getattr(memory, "shared", 0)))


def _parsed(parse: Callable[[str], tuple[Gpu, ...]], text: str) -> tuple[Gpu, ...]:
    try:
        return parse(text)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ProbeFailed(f"its answer cannot be understood: {error}") from error
