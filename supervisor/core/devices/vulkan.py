"""Read the loader's physical devices from `vulkaninfo --summary`, in the order in which llama.cpp counts them.

`GGML_VK_VISIBLE_DEVICES` names devices by that order (ggml-vulkan.cpp). Two device UUIDs tell which GPU it is: NVIDIA's
is the one of NVML, and Mesa's RADV writes the PCI address into its own, four little-endian words of domain, bus,
device and function.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from supervisor.core.devices.physical import AMD, INTEL, NVIDIA

_HEAD = re.compile(r"^GPU(\d+):\s*$", re.MULTILINE)
_FIELD = re.compile(r"^[ \t]++(\w++)[ \t]*+=(.*+)", re.MULTILINE)
_VENDORS = {0x1002: AMD, 0x8086: INTEL, 0x10DE: NVIDIA}
# Smaller is preferred where two drivers offer one GPU; ggml-vulkan.cpp's table by vendor.
_PRIORITIES = {
    "DRIVER_ID_MESA_RADV": 1,
    "DRIVER_ID_AMD_OPEN_SOURCE": 2,
    "DRIVER_ID_AMD_PROPRIETARY": 3,
    "DRIVER_ID_INTEL_OPEN_SOURCE_MESA": 1,
    "DRIVER_ID_INTEL_PROPRIETARY_WINDOWS": 2,
    "DRIVER_ID_NVIDIA_PROPRIETARY": 1,
    "DRIVER_ID_MESA_NVK": 2,
    "DRIVER_ID_MESA_DOZEN": 100,
}
_LEAST = 1000


@dataclass(frozen=True, slots=True)
class VulkanDevice:
    """A device of the loader: `index` as in GGML_VK_VISIBLE_DEVICES, `kind` discrete, integrated, cpu and so on."""

    index: int
    name: str
    kind: str
    vendor: str | None = None
    uuid: str | None = None
    driver: str | None = None

    @property
    def pci(self) -> str | None:
        """PCI address that RADV's UUID holds."""
        if self.driver != "DRIVER_ID_MESA_RADV" or not self.uuid:
            return None
        domain, bus, slot, function = struct.unpack("<4I", bytes.fromhex(self.uuid.replace("-", "")))
        return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def parse_vulkaninfo(text: str) -> tuple[VulkanDevice, ...]:
    """Return the devices of the summary, in order; empty where there is none."""
    parts = _HEAD.split(text)[1:]
    return tuple(_device(int(number), body) for number, body in zip(parts[::2], parts[1::2], strict=True))


def chosen_by_llama_cpp(devices: tuple[VulkanDevice, ...]) -> tuple[VulkanDevice, ...]:
    """Return the devices that llama.cpp takes when nothing masks them: GPUs, each once, by its best driver.

    Where there is no GPU it takes the first device that is no processor.
    """
    chosen: list[VulkanDevice] = []
    for device in devices:
        if device.kind not in {"discrete", "integrated"}:
            continue
        twin = next((one for one in chosen if device.uuid and one.uuid == device.uuid), None)
        if twin is None:
            chosen.append(device)
        elif _priority(device) < _priority(twin):
            chosen.remove(twin)
            chosen.append(device)
    if not chosen:
        chosen = [device for device in devices if device.kind != "cpu"][:1]
    return tuple(chosen)


def _device(number: int, body: str) -> VulkanDevice:
    facts = {name: value.strip() for name, value in _FIELD.findall(body)}
    kind = facts.get("deviceType", "").removeprefix("PHYSICAL_DEVICE_TYPE_").removesuffix("_GPU").lower()
    vendor = facts.get("vendorID", "0")
    number_of_vendor = int(vendor, 16) if vendor.startswith("0x") else 0
    uuid = facts.get("deviceUUID")
    return VulkanDevice(
        index=number,
        name=facts.get("deviceName", ""),
        kind=kind,
        vendor=_VENDORS.get(number_of_vendor),
        uuid=uuid if uuid and re.fullmatch(r"[0-9a-f-]{36}", uuid) else None,
        driver=facts.get("driverID"),
    )


def _priority(device: VulkanDevice) -> int:
    return _PRIORITIES.get(device.driver or "", _LEAST)
