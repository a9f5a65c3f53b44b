"""Machines that a person describes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices import Device, Host, Machine, budgets, parse_profile
from supervisor.core.devices.describe import as_json
from supervisor.errors import ProfileInvalid
from tests.core.devices.support import GIB

HOST = {"total": "64 GiB"}


def profile(**device: Any) -> dict[str, Any]:
    return {"host": HOST, "devices": [{"name": "CUDA0", "total": "24 GiB", **device}]}


def test_a_profile_becomes_a_machine() -> None:
    machine = parse_profile(profile(description="RTX 3090", free="23.5 GiB"))
    assert machine.host == Host(64 * GIB, 64 * GIB)
    assert machine.devices == (Device("CUDA0", "cuda", "RTX 3090", 24 * GIB, int(23.5 * GIB)),)


def test_what_is_left_out() -> None:
    (device,) = parse_profile(profile(backend="hip", shares_host=True)).devices
    assert (device.backend, device.free_bytes, device.shares_host) == ("hip", 24 * GIB, True)
    assert parse_profile({"host": {"total": 5, "available": 4}}).devices == ()


@pytest.mark.parametrize(
    ("text", "count"),
    [(1024, 1024), ("1024", 1024), ("24 GiB", 24 * GIB), ("24gib", 24 * GIB), ("1.5 KiB", 1536), ("24 GB", 24 * 10**9),
     ("2 TiB", 2048 * GIB), ("12 B", 12)],
)  # fmt: skip
def test_sizes(text: object, count: int) -> None:
    assert parse_profile(profile(total=text)).devices[0].total_bytes == count


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "must be a mapping"),
        ([], "must be a mapping"),
        ({"devices": []}, "host must be a mapping with available, total"),
        ({"host": {"total": 1}, "gpus": []}, "no key gpus; allowed: devices, host"),
        ({"host": {"totl": 1}}, "no key totl; allowed: available, total"),
        ({"host": {}}, "host: total must be a size"),
        ({"host": {"total": "much"}}, "'much' is not"),
        ({"host": {"total": -1}}, "not negative"),
        ({"host": {"total": 1, "available": 2}}, "available is more than total"),
        ({"host": HOST, "devices": {}}, "devices must be a list"),
        (profile(vram=1), "devices[0]: there is no key vram; allowed: backend"),
        (profile(name=""), "name is missing"),
        (profile(name="CPU"), "describe it under host"),
        (profile(total=True), "must be a size"),
        (profile(total=1 << 400), "below 2^60"),
        (profile(total="9999999 TiB"), "below 2^60"),
        (profile(total="9" * 400), "is not"),
        (profile(total="24 GX"), "'24 GX' is not"),
        (profile(free="25 GiB"), "free is more than total"),
        (profile(shares_host="yes"), "true or false"),
        (profile(description=5), "description must be a text"),
        ({"host": HOST, "devices": [{"name": "A", "total": 1}] * 2}, "same name"),
    ],
)
def test_what_is_wrong_is_named(value: object, told: str) -> None:
    with pytest.raises(ProfileInvalid) as caught:
        parse_profile(value)
    assert told in caught.value.message


def test_what_devices_writes_is_a_profile() -> None:
    card = Device("CUDA0", "cuda", "RTX 3090", 24 * GIB, 20 * GIB, index=1, uuid="GPU-1", processes={5: GIB})
    worker = Device("RPC0", "rpc", "", 12 * GIB, 11 * GIB, endpoint="10.0.0.7:50052")
    again = Device("Vulkan0", "vulkan", "RTX 3090", 24 * GIB, 20 * GIB, uuid="GPU-1")
    machine = Machine(Host(64 * GIB, 60 * GIB), (card, worker, again))
    found = parse_profile(as_json(machine, budgets(machine)))
    assert found.host == machine.host
    assert found.devices == (Device("CUDA0", "cuda", "RTX 3090", 24 * GIB, 20 * GIB), worker)


@pytest.mark.parametrize("broken", [
    {"host": {"total_bytes": "much"}},
    {"host": {"total_bytes": 5, "available_bytes": 6}},
    {"host": {"total_bytes": 5}, "devices": [{"name": "A", "usable_bytes": 1}]},
    {"host": {"total_bytes": 5}, "devices": [5]},
])  # fmt: skip
def test_a_broken_listing_is_refused(broken: object) -> None:
    with pytest.raises(ProfileInvalid):
        parse_profile(broken)


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans() | st.floats(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["host", "devices", "total", "total_bytes", "name", "x"]), inner)
        ),
    )
)
def test_anything_else_is_refused_properly(value: object) -> None:
    try:
        machine = parse_profile(value)
    except ProfileInvalid:
        return
    assert machine.host.available_bytes <= machine.host.total_bytes
