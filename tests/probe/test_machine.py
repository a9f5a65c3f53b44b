"""The machine from all sources: made engines and drivers that are real programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.core.devices import Machine
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from tests.core.devices.support import DATA

ENGINE = """#!/bin/sh
echo "$@ / $CUDA_VISIBLE_DEVICES / $CUDA_DEVICE_ORDER / $LLAMA_ARG_RPC" >> {calls}
echo 'Available devices:'
for uuid in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    case $uuid in
        *a) echo "  CUDA$((n)): NVIDIA GeForce RTX 4090 (24080 MiB, 18000 MiB free)" ;;
        *b) echo "  CUDA$((n)): NVIDIA GeForce RTX 3090 (24124 MiB, 23000 MiB free)" ;;
    esac
    n=$((n + 1))
done
"""


class Bench:
    """A scratch machine: an engine that lists what it may see, and a driver that may hang."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = self.program("llama-server", ENGINE.format(calls=folder / "engine.calls"))
        self.driver = folder / "nvml.json"
        self.driver.write_text((DATA / "nvml.json").read_text())
        (folder / "dev").mkdir()
        (folder / "dev/nvidiactl").touch()

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def around(self, limit_s: float = 5, **env: str) -> Surroundings:
        """Surroundings with nothing of the real machine."""
        helper = self.program("nvml", f"#!/bin/sh\necho asked >> {self.folder}/nvml.calls\ncat {self.driver}\n")
        empty = self.folder / "nothing"
        given = {"PATH": os.environ["PATH"], **env}
        return Surroundings(given, empty, self.folder / "dev", empty, "linux", limit_s, (str(helper),))

    def calls(self, program: str) -> list[str]:
        path = self.folder / f"{program}.calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def shown(machine: Machine) -> list[tuple[str, int | None, int]]:
    return [(device.name, device.index, device.free_bytes) for device in machine.devices]


def test_the_engine_is_asked_once_and_the_driver_every_time(bench: Bench) -> None:
    prober = Prober(bench.around(LLAMA_ARG_RPC="nowhere:1"))
    first = prober.machine(bench.engine)
    assert shown(first) == [("CUDA0", 0, 20000000000), ("CUDA1", 1, 24124 << 20)]
    assert first.problems == ()
    bench.driver.write_text(bench.driver.read_text().replace("20000000000", "5"))
    assert shown(prober.machine(bench.engine))[0] == ("CUDA0", 0, 5)
    assert len(bench.calls("nvml")) == 2
    (call,) = bench.calls("engine")
    assert call.startswith(
        "--list-devices / GPU-1f00aa10"
    )  # PCI order, by UUID; the caller's own settings are not there
    assert call.endswith("/ PCI_BUS_ID / ")
    prober.machine(bench.engine, again=True)
    assert len(bench.calls("engine")) == 2


def test_another_binary_is_asked_anew(bench: Bench) -> None:
    prober = Prober(bench.around())
    prober.machine(bench.engine)
    bench.engine.write_text(bench.engine.read_text() + "# newer\n")
    prober.machine(bench.engine)
    assert len(bench.calls("engine")) == 2


def test_a_mask_holds_for_the_engine(bench: Bench) -> None:
    around = bench.around(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    (device,) = Prober(around).machine(bench.engine).devices
    assert (device.name, device.index, device.description) == ("CUDA0", 1, "NVIDIA GeForce RTX 3090")
    assert Prober(bench.around(CUDA_VISIBLE_DEVICES="")).machine(bench.engine).devices == ()


def test_a_driver_that_hangs_costs_its_limit_once(bench: Bench) -> None:
    prober = Prober(bench.around(limit_s=0.6, CUDA_VISIBLE_DEVICES="GPU-1f00aa10-0000-4000-8000-00000000000a"))
    bench.driver.unlink()
    os.mkfifo(bench.driver)  # whoever reads it waits for a writer
    first, second = prober.machine(bench.engine), prober.machine(bench.engine)
    assert len(bench.calls("nvml")) == 1
    for machine in (first, second):
        assert [problem.probe for problem in machine.problems] == ["nvml"]
        assert "gave no answer within 0.6 s" in machine.problems[0].message
        assert shown(machine) == [("CUDA0", None, 18000 << 20)]  # what the engine says is known all the same
    assert prober.runs[0].seconds >= 0.6
    assert len(bench.calls("engine")) == 2  # no driver tells what is free
    prober.machine(bench.engine, again=True)
    assert len(bench.calls("nvml")) == 2


def test_an_engine_that_fails_is_a_problem(bench: Bench) -> None:
    bench.program("llama-server", "#!/bin/sh\necho 'error: invalid argument: --list-devices' >&2; exit 1\n")
    machine = Prober(bench.around()).machine(bench.engine)
    assert machine.devices == ()
    assert "engine" in {problem.probe for problem in machine.problems}
    assert any("invalid argument" in problem.message for problem in machine.problems)
    gone = Prober(bench.around()).machine(bench.folder / "absent")
    assert any("cannot be read" in problem.message for problem in gone.problems)


def test_an_answer_that_makes_no_sense_is_a_problem(bench: Bench) -> None:
    bench.driver.write_text('{"gpus": [5]}')
    (problem,) = Prober(bench.around()).machine(bench.engine).problems
    assert (problem.probe, "cannot be understood" in problem.message) == ("nvml", True)


def test_without_an_engine_the_driver_is_heard(bench: Bench) -> None:
    machine = Prober(bench.around()).machine(None)
    assert [device.description for device in machine.devices] == ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"]
    assert [problem.probe for problem in machine.problems] == ["engine"]


def test_no_driver_is_no_problem(bench: Bench) -> None:
    (bench.folder / "dev/nvidiactl").unlink()
    machine = Prober(bench.around()).machine(bench.engine)
    assert (machine.devices, machine.problems, bench.calls("nvml")) == ((), (), [])
    assert machine.host.available_bytes > 0
