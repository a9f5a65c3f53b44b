"""What the driver tells of our own processes: by our names of devices, and kept with the start it belongs to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.core.devices.join import held_by
from supervisor.core.engine_output.footprint import DeviceFootprint, Footprint
from supervisor.core.launch import LaunchOptions
from supervisor.planning.learning import Learning, intent_of, start_of
from supervisor.probe.machine import Prober
from supervisor.store import Database
from tests.probe.test_machine import Bench
from tests.support.placements import placement

MIB = 1 << 20


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_process_is_found_by_our_names(bench: Bench) -> None:
    prober = Prober(bench.around())
    assert prober.process_bytes(4711) == {}, "no look yet, so no names"
    assert bench.calls("nvml") == []
    prober.machine(bench.engine)
    assert prober.process_bytes(4711) == {"CUDA1": 200 * MIB}
    assert prober.process_bytes(4800) == {}, "the driver does not say how much"
    bench.driver.write_text(bench.driver.read_text().replace("209715200", "419430400"))
    assert prober.process_bytes(4711) == {"CUDA1": 400 * MIB}
    assert len(bench.calls("engine")) == 1


def test_a_mask_gives_it_another_name(bench: Bench) -> None:
    prober = Prober(bench.around(CUDA_VISIBLE_DEVICES="GPU-9a1b"))
    prober.machine(bench.engine)
    assert prober.process_bytes(4711) == {"CUDA0": 200 * MIB}


def test_a_driver_that_fails_tells_nothing(bench: Bench) -> None:
    prober = Prober(bench.around())
    devices = prober.machine(bench.engine).devices
    assert held_by(4711, devices, ()) == {}
    bench.driver.write_text("nonsense")
    assert prober.process_bytes(4711) == {}


def test_what_the_driver_tells_is_kept_with_the_start(bench: Bench) -> None:
    """A second name of the same GPU, for another back end, counts no second time."""
    pid = os.getpid()
    bench.driver.write_text(bench.driver.read_text().replace("4711", str(pid)))
    prober = Prober(bench.around())
    device = next(one for one in prober.machine(bench.engine).devices if one.name == "CUDA1")

    def told(asked: int) -> dict[str, int]:
        held = dict(prober.process_bytes(asked))
        return held | {"Vulkan0": held["CUDA1"]}

    learning = Learning(Database.open(bench.folder / "state.db"), lambda: 5.0, told)
    intent = intent_of(placement(("CUDA1",)), LaunchOptions(), [device])
    start = start_of("model", intent, "engine", 1)
    account = Footprint((DeviceFootprint("CUDA0", weights_bytes=70 * MIB), DeviceFootprint("CPU")))
    notes = learning.begin(start, intent, {"CUDA0": "CUDA1"}, None)
    notes.ready(pid, 1.0, None, account)
    learning.flush()
    (seen,) = learning.observations("model")
    learning.close()
    assert {name: held for name, held in seen.overhead_bytes.items() if name != "CPU"} == {"CUDA1": 130 * MIB}
    assert seen.footprint == replace(
        account, devices=(DeviceFootprint("CUDA1", weights_bytes=70 * MIB), *account.devices[1:])
    )
