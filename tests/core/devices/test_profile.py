"""Machines that a person describes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices import Device, Host, parse_profile
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
        ({"host": {"total": "much"}}, "'much' is none"),
        ({"host": {"total": -1}}, "not negative"),
        ({"host": {"total": 1, "available": 2}}, "available is more than total"),
        ({"host": HOST, "devices": {}}, "devices must be a list"),
        (profile(vram=1), "devices[0]: there is no key vram; allowed: backend"),
        (profile(name=""), "name is missing"),
        (profile(name="CPU"), "describe it under host"),
        (profile(total=True), "must be a size"),
        (profile(total="24 GX"), "'24 GX' is none"),
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


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans() | st.floats(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["host", "devices", "total", "name", "x"]), inner)
        ),
    )
)
def test_anything_else_is_refused_properly(value: object) -> None:
    try:
        machine = parse_profile(value)
    except ProfileInvalid:
        return
    assert machine.host.available_bytes <= machine.host.total_bytes
