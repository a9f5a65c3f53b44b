"""Read the description of another machine from a list that a person wrote, for `plan --devices FILE`.

    host: {total: 64 GiB, available: 60 GiB}
    devices:
      - {name: CUDA0, backend: cuda, description: RTX 3090, total: 24 GiB, free: 23.5 GiB}

Sizes are bytes, or texts with a unit: KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB (powers of 1000). `free` and
`available` are the total where they are left out, `backend` is what llama.cpp's name says, `shares_host` is false;
`endpoint` is the `host:port` of an RPC worker. What `devices --json` wrote on another machine serves as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.core.devices.engine_list import backend_of
from supervisor.core.devices.model import HOST, Device, Host, Machine
from supervisor.errors import ProfileInvalid

_TOP = ("devices", "host")
_HOST = ("available", "total")
_DEVICE = ("backend", "description", "endpoint", "free", "name", "shares_host", "total")
_SIZE = re.compile(r"(?P<number>\d{1,20}(?:\.\d{1,20})?)\s*(?P<unit>[A-Za-z]*)")
_MOST = 1 << 60
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}


def parse_profile(value: object) -> Machine:
    """Return the machine that a loaded YAML or JSON object describes, or that `describe.as_json` gave.

    Raises ProfileInvalid naming what is wrong and what is allowed there.
    """
    top = _mapping(_from_listing(value), "The profile", _TOP)
    host = _mapping(top.get("host"), "host", _HOST)
    total = _size(host, "total", "host")
    available = _size(host, "available", "host", total)
    _require(available <= total, "host: available is more than total.")
    listed = top.get("devices")
    _require(listed is None or isinstance(listed, list), "devices must be a list; leave it out where there is none.")
    devices = tuple(
        _device(one, f"devices[{number}]") for number, one in enumerate(listed if isinstance(listed, list) else ())
    )
    names = [device.name for device in devices]
    _require(len(set(names)) == len(names), "devices: two have the same name.")
    _require(HOST not in names, f"devices: {HOST} is the host; describe it under host.")
    return Machine(Host(total, available), devices)


def _from_listing(value: object) -> object:
    """Return the output of `devices --json` as a profile, without second names of a GPU; anything else as it is."""
    host = value.get("host") if isinstance(value, Mapping) else None
    if not isinstance(host, Mapping) or "total_bytes" not in host:
        return value
    assert isinstance(value, Mapping)
    listed = value.get("devices")
    if isinstance(listed, list) and all(isinstance(one, Mapping) for one in listed):
        listed = [_listed_device(one) for one in listed if one.get("usable_bytes") is not None]
    return {"host": {"total": host["total_bytes"], "available": host.get("available_bytes")}, "devices": listed}


def _listed_device(facts: Mapping[str, object]) -> Mapping[str, object]:
    sizes = {"total": facts.get("total_bytes"), "free": facts.get("free_bytes")}
    return {key: value for key, value in {**facts, **sizes}.items() if key in _DEVICE and value is not None}


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
    endpoint = _text(facts, "endpoint", where) or None
    description = _text(facts, "description", where)
    return Device(name, backend, description, total, free, shares_host=bool(shares), endpoint=endpoint)


def _mapping(value: object, where: str, allowed: tuple[str, ...]) -> Mapping[str, object]:
    _require(isinstance(value, Mapping), f"{where} must be a mapping with {', '.join(allowed)}.")
    assert isinstance(value, Mapping)
    unknown = sorted(str(key) for key in value if key not in allowed)
    _require(not unknown, f"{where}: there is no key {', '.join(unknown)}; allowed: {', '.join(allowed)}.")
    return value


def _text(facts: Mapping[str, object], key: str, where: str) -> str:
    value = facts.get(key, "")
    _require(isinstance(value, str), f"{where}: {key} must be a text.")
    return str(value)


def _size(facts: Mapping[str, object], key: str, where: str, default: int | None = None) -> int:
    value = facts.get(key, default)
    told = f"{where}: {key} must be a size, such as 24 GiB or a number of bytes"
    _require(value is not None and not isinstance(value, bool), f"{told}.")
    if isinstance(value, int):
        _require(0 <= value <= _MOST, f"{told}, not negative and below 2^60.")
        return value
    found = _SIZE.fullmatch(str(value).strip())
    unit = _UNITS.get(found["unit"].lower()) if found else None
    _require(unit is not None, f"{told}; {value!r} is not.")
    assert found
    assert unit
    count = int(float(found["number"]) * unit)
    _require(count <= _MOST, f"{told}, below 2^60 bytes.")
    return count


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ProfileInvalid(message)
