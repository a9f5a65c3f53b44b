"""What the gateway knows of each worker, and when one, or an engine's use of one, is lost. Pure: time is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from supervisor.core.workers.messages import DeviceState, Hello, OfferedDevice, Report, WorkerState

HEARTBEAT_S: Final = 2.0
SILENT_S: Final = 6.0
"""A worker that says nothing for so long is lost: three reports."""

HUNG_S: Final = 30.0
"""An RPC server that owes an answer for so long, without a byte and without CPU time, is hung."""

_IDLE_CPU: Final = 0.05  # of one core: less is a process that waits
_TRIPS: Final = 16  # of which the shortest is the round trip


@dataclass
class Lease:
    """An engine's use of a device.

    Attributes:
        pid: the engine.
        owing_since: when the last byte went, if it went to the worker: since then an answer is owed; else None.
        cpu_s: of the RPC server, at that moment.
        checked_at: when CPU time was looked at last.
    """

    pid: int
    owing_since: float | None = None
    cpu_s: float = 0.0
    checked_at: float = 0.0

    def sent(self, now: float) -> None:
        """Note bytes for the worker."""
        self.owing_since = now if self.owing_since is None else self.owing_since
        self.checked_at = now

    def came(self) -> None:
        """Note bytes of the worker."""
        self.owing_since = None


@dataclass
class Offer:
    """A device that a worker offers, at a port of the loopback interface."""

    device: OfferedDevice
    port: int
    lease: Lease | None = None

    def lend(self, pid: int) -> None:
        """Give it to an engine."""
        self.lease = Lease(pid)

    def free(self) -> None:
        """Take it back."""
        self.lease = None


@dataclass
class Worker:
    """One that has joined."""

    name: str
    joined_at: float
    hello: Hello | None = None
    address: str = ""
    heard_at: float = 0.0
    reason: str = "it has not connected yet"
    offers: dict[str, Offer] = field(default_factory=dict)
    trips: deque[float] = field(default_factory=lambda: deque(maxlen=_TRIPS))

    def connected(self, hello: Hello, address: str, now: float) -> None:
        """Take its greeting. Offers are the caller's to open."""
        self.hello, self.address, self.heard_at, self.reason = hello, address, now, ""
        self.trips.clear()

    def heard(self, now: float) -> None:
        """Note that it has said something."""
        self.heard_at = now

    def reported(self, report: Report, now: float) -> None:
        """Take its report: figures of devices that it offered; others are passed over."""
        self.heard_at = now
        for device in report.devices:
            if (offer := self.offers.get(device.name)) is not None:
                offer.device = device
        for name, cpu_s in report.cpu_s.items():
            offer = self.offers.get(name)
            if offer is None or offer.lease is None:
                continue
            lease = offer.lease
            spent = cpu_s - lease.cpu_s
            if spent > _IDLE_CPU * max(now - lease.checked_at, 1.0):
                lease.checked_at, lease.cpu_s = now, cpu_s

    def disconnected(self, reason: str) -> None:
        """Note that it is gone; its offers are the caller's to close."""
        self.hello, self.reason = None, reason

    def is_silent(self, now: float) -> bool:
        """Return whether a connected worker has said nothing for too long."""
        return self.hello is not None and now - self.heard_at > SILENT_S

    def hung(self, now: float) -> Iterator[Offer]:
        """Yield the devices whose RPC servers owe an answer and do nothing for it."""
        for offer in self.offers.values():
            lease = offer.lease
            if lease is None or lease.owing_since is None:
                continue
            if now - max(lease.owing_since, lease.checked_at) > HUNG_S:
                yield offer

    def state(self, machine: str) -> WorkerState:
        """Return it as it is told. machine: names this host."""
        hello = self.hello
        devices = tuple(
            DeviceState(
                one.device.name,
                one.device.description,
                one.device.total_bytes,
                one.device.free_bytes,
                one.port,
                None if one.lease is None else one.lease.pid,
            )
            for one in self.offers.values()
        )
        return WorkerState(
            self.name,
            self.joined_at,
            connected=hello is not None,
            program="" if hello is None else hello.program,
            build="" if hello is None else hello.build,
            address=self.address,
            rtt_s=min(self.trips, default=None),
            here=hello is not None and hello.machine == machine,
            devices=devices,
            reason=self.reason,
        )


def is_refused(hello: Hello, ours: int) -> str | None:
    """Return why a greeting is refused; None: it is not. ours: our protocol."""
    if hello.protocol != ours:
        return (
            f"it speaks protocol {hello.protocol} of workers, and the daemon {ours}; "
            f"install the same version of llama-supervisor on both (it has {hello.program})"
        )
    return None


def changed(before: Mapping[str, WorkerState], now: Mapping[str, WorkerState]) -> bool:
    """Return whether something is to be told: anything but the free bytes and the round trip."""
    return {name: _lasting(one) for name, one in before.items()} != {name: _lasting(one) for name, one in now.items()}


def _lasting(one: WorkerState) -> tuple[object, ...]:
    return one.connected, one.build, one.reason, tuple((device.name, device.port, device.pid) for device in one.devices)
