"""A real llama-server with real RPC workers as its devices."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisor.core.devices import Host, Machine, budgets
from supervisor.probe.engine_list import worker_is_free
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from tests.support.patience import PATIENCE
from tests.support.workers import rpc_worker

pytestmark = pytest.mark.engine

Worker = Callable[[], str]


@pytest.fixture
def worker(engine_binary: Path) -> Iterator[Worker]:
    """Starts workers; gives their endpoints."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(rpc_worker(engine_binary))


def probe_machine(engine: Path, endpoints: Sequence[str] = ()) -> Machine:
    """The machine, asked once."""
    return Prober(Surroundings(os.environ)).machine(engine, endpoints)


def test_the_machine_as_it_is(engine_binary: Path) -> None:
    machine = probe_machine(engine_binary)
    assert isinstance(machine.host, Host)
    assert 0 < machine.host.available_bytes <= machine.host.total_bytes
    assert not [problem for problem in machine.problems if problem.probe == "engine"]


def test_one_worker(engine_binary: Path, worker: Worker) -> None:
    endpoint = worker()
    machine = probe_machine(engine_binary, [endpoint])
    (device,) = [device for device in machine.devices if device.backend == "rpc"]
    assert (device.name, device.endpoint, device.description) == ("RPC0", endpoint, endpoint)
    assert 0 < device.free_bytes <= device.total_bytes
    budget = next(one for one in budgets(machine).devices if one.name == "RPC0")
    assert 0 < budget.usable_bytes < device.total_bytes


def test_two_workers_in_the_order_of_the_list(engine_binary: Path, worker: Worker) -> None:
    first, second = worker(), worker()
    machine = probe_machine(engine_binary, [second, first, second])
    workers = [(device.name, device.endpoint) for device in machine.devices if device.backend == "rpc"]
    assert workers == [("RPC0", second), ("RPC1", first)]


def test_one_that_is_down_is_left_out(engine_binary: Path, worker: Worker) -> None:
    endpoint = worker()
    machine = probe_machine(engine_binary, ["127.0.0.1:1", endpoint])
    assert [device.endpoint for device in machine.devices if device.backend == "rpc"] == [endpoint]
    (problem,) = [problem for problem in machine.problems if problem.probe == "rpc 127.0.0.1:1"]
    assert "start ggml-rpc-server there" in problem.message


def test_one_that_serves_somebody_is_what_it_was(engine_binary: Path, worker: Worker) -> None:
    endpoint = worker()
    prober = Prober(Surroundings(os.environ))
    before = prober.machine(engine_binary, [endpoint]).devices
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port))):  # a client that says nothing keeps the worker
        assert not worker_is_free(endpoint, 5)
        assert prober.machine(engine_binary, [endpoint]).devices == before
        stranger = probe_machine(engine_binary, [endpoint])
        assert [device for device in stranger.devices if device.backend == "rpc"] == []
        assert any("serves another program (one at a time)" in problem.message for problem in stranger.problems)
    assert any(worker_is_free(endpoint, 5) for _ in range(5))  # it first sees off those who gave up


def test_one_that_serves_our_own_engine_is_not_asked(engine_binary: Path) -> None:
    prober = Prober(Surroundings(os.environ))
    with rpc_worker(engine_binary) as endpoint:
        before = prober.machine(engine_binary, [endpoint])
    after = prober.machine(engine_binary, [endpoint], ours={"RPC0"})  # it is gone: who asked would see that
    assert (after.devices, after.problems) == (before.devices, before.problems)
    assert prober.machine(engine_binary, [endpoint]).problems != before.problems


def test_names_are_those_that_the_engine_itself_takes(engine_binary: Path, worker: Worker) -> None:
    endpoints = [worker(), worker()]
    machine = probe_machine(engine_binary, endpoints)
    listing = subprocess.run(
        [str(engine_binary), "--rpc", ",".join(endpoints), "--list-devices"],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    for device in machine.devices:
        assert f"  {device.name}: {device.description} (" in listing.stdout
