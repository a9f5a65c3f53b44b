"""Look at the machine at one moment, through all sources together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from supervisor.core.devices import Device, Host, Machine, Problem
from supervisor.core.devices.amd import with_names
from supervisor.core.devices.engine_list import Listed
from supervisor.core.devices.join import DriverReport, held_by, is_known, join, listing_env
from supervisor.core.devices.physical import AMD, Gpu
from supervisor.core.devices.unlisted import guess_list, unused_gpus
from supervisor.core.devices.vulkan import VulkanDevice
from supervisor.probe import drivers
from supervisor.probe.engine_list import identity, list_devices, list_worker, worker_is_free
from supervisor.probe.places import Surroundings
from supervisor.probe.tool import PAUSE_SECONDS, Patience, ProbeFailed, ProbeRun

_NO_ENGINE = Problem(
    "engine", "No llama-server could be asked, so devices are what the drivers tell; run `supervisor engine install`."
)


class Prober:
    """The one that knows the machine. It asks one question at a time, in plain functions to be called from a thread.

    The engine's list is asked for once per file and environment: it starts the GPU's runtime for a moment. After that
    free memory comes from the drivers; where a driver does not tell, the engine is asked again.

    Args:
        around: where to look, and for how long at most.
        clock, pause_s: as for `Patience`.
    """

    def __init__(
        self, around: Surroundings, clock: Callable[[], float] = time.monotonic, pause_s: float = PAUSE_SECONDS
    ) -> None:
        self._around = around
        self._patience = Patience(clock, pause_s)
        self._busy = threading.Lock()
        self._lists: dict[tuple[object, ...], tuple[Listed, ...]] = {}
        self._workers: dict[str, tuple[Listed, ...]] = {}
        self._tools: tuple[Gpu, ...] | None = None
        self._vulkan: tuple[VulkanDevice, ...] | None = None
        self._devices: tuple[Device, ...] = ()

    @property
    def runs(self) -> tuple[ProbeRun, ...]:
        """Outcome of each probe's last run, with the seconds it took."""
        return self._patience.runs

    def machine(
        self,
        binary: Path | None,
        rpc: Sequence[str] = (),
        joined: Sequence[Listed] = (),
        *,
        again: bool = False,
        ours: Collection[str] = (),
    ) -> Machine:
        """Return the machine as it is now.

        Args:
            binary: the llama-server that will be used; None: there is none.
            rpc: `host:port` of RPC workers.
            joined: devices of workers that have joined; they tell of themselves, and are not asked.
            again: forget what is remembered, failures too.
            ours: names of devices on which our engines are; their workers would not answer, and are not asked.

        A probe that fails or takes too long becomes a problem of the answer; nothing is raised.
        """
        with self._busy:
            if again:
                self._forget()
            host = drivers.host(self._around)
            env = self._around.env
            found = DriverReport(self._gpus(), self._vulkan or ())
            listed = self._listed(binary, found)
            if any(one.backend == "vulkan" for one in listed):
                found = replace(found, vulkan=self._asked_vulkan())
            busy = {one.endpoint for one in self._devices if one.name in ours}
            workers = self._rpc(binary, tuple(dict.fromkeys(rpc)), busy) if binary else ()
            seen = join((*listed, *_numbered(workers), *joined), found, env, host)
            self._devices = seen.devices
            failed = [run.problem for run in self._patience.runs if run.problem]
            about_engine = unused_gpus(found, seen.devices, env) if binary else (_NO_ENGINE,)
            return Machine(host, seen.devices, (*about_engine, *failed, *seen.problems))

    def process_bytes(self, pid: int) -> Mapping[str, int]:
        """Return the bytes that the drivers now say a process holds, by the names of the last look at the machine.

        Devices of which none tells are left out; in a container NVIDIA's driver tells of none of ours.
        """
        with self._busy:
            return held_by(pid, self._devices, self._gpus()) if self._devices else {}

    def _forget(self) -> None:
        self._patience.forgive()
        self._lists.clear()
        self._tools = self._vulkan = None

    def _gpus(self) -> tuple[Gpu, ...]:
        ask, around = self._patience.ask, self._around
        gpus: tuple[Gpu, ...] = ()
        if drivers.has_nvidia(around):
            gpus += ask("nvml", lambda: drivers.nvidia(around))
        if around.system == "darwin":
            gpus += ask("apple", lambda: drivers.apple(around))
        elif around.system == "linux":
            gpus += self._with_amd_tools(ask("sysfs", lambda: drivers.kernel(around)))
        return gpus

    def _with_amd_tools(self, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """Return the GPUs with AMD's names. Its tools are slow and add names only, so they are asked once."""
        amd = tuple(gpu for gpu in gpus if gpu.vendor == AMD)
        if not amd and not (self._around.devices / "kfd").exists():
            return gpus
        if self._tools is None:
            self._tools = self._patience.ask("amd-smi", lambda: drivers.amd_tools(self._around))
        return (*with_names(amd, self._tools), *(gpu for gpu in gpus if gpu.vendor != AMD))

    def _asked_vulkan(self) -> tuple[VulkanDevice, ...]:
        if self._vulkan is None:
            self._vulkan = self._patience.ask("vulkaninfo", lambda: drivers.vulkan(self._around))
        return self._vulkan

    def _listed(self, binary: Path | None, found: DriverReport) -> tuple[Listed, ...]:
        if binary is None:
            return guess_list(found, self._around.env)
        env = {**self._around.env, **listing_env(found, self._around.env)}
        return self._patience.ask("engine", lambda: self._ask_engine(binary, env, found))

    def _ask_engine(self, binary: Path, env: Mapping[str, str], found: DriverReport) -> tuple[Listed, ...]:
        key = identity(binary, env)
        listed = self._lists.get(key)
        if listed is None or not _told_by_drivers(listed, found, self._around.env):
            listed = self._lists[key] = list_devices(binary, env, self._around.limit_s)
        return listed

    def _rpc(self, binary: Path, endpoints: Sequence[str], busy: Collection[str | None]) -> tuple[Listed, ...]:
        found: list[Listed] = []
        for endpoint in endpoints:
            if endpoint in busy and endpoint in self._workers:
                found += self._workers[endpoint]
                continue
            found += self._patience.ask(f"rpc {endpoint}", partial(self._ask_worker, binary, endpoint))
        return tuple(found)

    def _ask_worker(self, binary: Path, endpoint: str) -> tuple[Listed, ...]:
        """Return the devices of a worker; one that serves somebody is what it was when it was last asked."""
        if worker_is_free(endpoint, self._around.limit_s):
            self._workers[endpoint] = list_worker(binary, endpoint, self._around.env, self._around.limit_s)
        elif endpoint not in self._workers:
            raise ProbeFailed(
                f"the worker at {endpoint} does not answer: it serves another program (one at a time), "
                "or its machine cannot be reached"
            )
        return self._workers[endpoint]


def _told_by_drivers(listed: Sequence[Listed], found: DriverReport, env: Mapping[str, str]) -> bool:
    """Return whether free memory needs no engine: a driver knows each device, or it is the host's."""
    devices = join(listed, found, env, Host(0, 0)).devices
    return all(device.backend == "metal" or is_known(device, found.gpus) for device in devices)


def _numbered(workers: Sequence[Listed]) -> tuple[Listed, ...]:
    """Return the workers numbered as an engine that is given all of them numbers them."""
    return tuple(replace(one, name=f"RPC{number}") for number, one in enumerate(workers))
