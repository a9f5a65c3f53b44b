"""A machine that one does not have, from a list that a person wrote: for `plan --devices FILE`.

    host: {total: 64 GiB, available: 60 GiB}
    devices:
      - {name: CUDA0, backend: cuda, description: RTX 3090, total: 24 GiB, free: 23.5 GiB}

Sizes are bytes, or texts with a unit: KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB (powers of 1000). `free` and
`available` are the total where they are left out, `backend` is what llama.cpp's name says, `shares_host` is false.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from supervisor.core.devices.engine_list import backend_of
from supervisor.core.devices.model import HOST, Device, Host, Machine
from supervisor.errors import ProfileInvalid

_TOP = ("devices", "host")
_HOST = ("available", "total")
_DEVICE = ("backend", "description", "free", "name", "shares_host", "total")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)")
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}


def parse_profile(value: object) -> Machine:
    """The machine that a loaded YAML or JSON object describes.

    Raises ProfileInvalid naming what is wrong and what is allowed there.
    """
    top = _mapping(value, "The profile", _TOP)
    host = _mapping(top.get("host"), "host", _HOST)
    total = _size(host, "total", "host")
    available = _size(host, "available", "host", total)
    _require(available <= total, "host: available is more than total.")
    listed = top.get("devices")
    _require(listed is None or isinstance(listed, list), "devices must be a list; leave it out where there is none.")
    devices = tuple(_device(one, f"devices[{number}]") for number, one in enumerate(listed or ()))
    names = [device.name for device in devices]
    _require(len(set(names)) == len(names), "devices: two have the same name.")
    _require(HOST not in names, f"devices: {HOST} is the host; describe it under host.")
    return Machine(Host(total, available), devices)


def _device(value: object, where: str) -> Device:
    facts = _mapping(value, where, _DEVICE)
    name = _text(facts, "name", where)
    shares = facts.get("shares_host", False)
    _require(bool(name), f"{where}: name is missing; it is llama.cpp's, such as CUDA0, ROCm0, Vulkan0 or MTL0.")
    _require(isinstance(shares, bool), f"{where}: shares_host must be true or false.")
    total = _size(facts, "total", where)
    free = _size(facts, "free", where, total)
    _require(free <= total, f"{where}: free is more than total.")
    backend = _text(facts, "backend", where) or backend_of(name)
    return Device(name, backend, _text(facts, "description", where), total, free, shares_host=bool(shares))


def _mapping(value: object, where: str, allowed: tuple[str, ...]) -> Mapping[str, Any]:
    _require(isinstance(value, Mapping), f"{where} must be a mapping with {', '.join(allowed)}.")
    assert isinstance(value, Mapping)
    unknown = sorted(str(key) for key in value if key not in allowed)
    _require(not unknown, f"{where}: there is no key {', '.join(unknown)}; allowed: {', '.join(allowed)}.")
    return value


def _text(facts: Mapping[str, Any], key: str, where: str) -> str:
    value = facts.get(key, "")
    _require(isinstance(value, str), f"{where}: {key} must be a text.")
    return str(value)


def _size(facts: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = facts.get(key, default)
    told = f"{where}: {key} must be a size, such as 24 GiB or a number of bytes"
    _require(value is not None and not isinstance(value, bool), f"{told}.")
    if isinstance(value, int):
        _require(value >= 0, f"{told}, and not negative.")
        return value
    found = _SIZE.fullmatch(str(value).strip())
    unit = _UNITS.get(found["unit"].lower()) if found else None
    _require(unit is not None, f"{told}; {value!r} is none.")
    assert found
    assert unit
    return int(float(found["number"]) * unit)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ProfileInvalid(message)
