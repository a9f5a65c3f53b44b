"""What a service manager gives us and is told: sockets that listen already, and datagrams about how we are.

The variables and messages are those of systemd's manual pages sd_listen_fds(3) and sd_notify(3). Other managers that
speak the same protocol are served, too. Without the variables nothing is sent and nothing is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

from supervisor.core.environment import MANAGERS
from supervisor.errors import PassedSocketUnusable

_FIRST = 3  # the number of the first descriptor that is passed
_MICROSECONDS = 1e-6


@dataclass(frozen=True)
class ServiceManager:
    """The service manager that started this process, if any.

    Args:
        variables: those of its protocol, as they were at the start.
    """

    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def taken(cls, env: MutableMapping[str, str]) -> ServiceManager:
        """Take its variables out of an environment, so that no child is mistaken for this process."""
        return cls({name: env.pop(name) for name in MANAGERS if name in env})

    def listener(self) -> socket.socket | None:
        """Return the socket that was passed; None where none was. To be called once, as it then belongs to the caller.

        Raises PassedSocketUnusable where it is not one TCP socket that listens.
        """
        if self.variables.get("LISTEN_PID") != str(os.getpid()):
            return None
        passed = _number(self.variables.get("LISTEN_FDS"))
        if passed > 1:
            raise PassedSocketUnusable(f"The service manager passed {passed} sockets; give its unit one ListenStream=.")
        return _adopted(_FIRST) if passed else None

    @property
    def watchdog_seconds(self) -> float | None:
        """The seconds after which silence counts as a hung process; None where nobody watches."""
        if self.variables.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return _number(self.variables.get("WATCHDOG_USEC")) * _MICROSECONDS or None

    def tell(self, *lines: str) -> None:
        """Send one message of `NAME=VALUE` lines, if a manager listens. A message that cannot be sent is dropped."""
        address = self.variables.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return
        place = "\0" + address[1:] if address.startswith("@") else address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), place)

    def ready(self, url: str) -> None:
        """Tell that requests are answered at `url`."""
        self.tell("READY=1", f"STATUS=answering at {url}")

    def stopping(self) -> None:
        """Tell that the process is about to end."""
        self.tell("STOPPING=1", "STATUS=waiting for running requests")

    async def watched(self) -> None:
        """Tell, from within the event loop, twice in the watchdog's time that it turns. Ends where nobody watches."""
        seconds = self.watchdog_seconds
        while seconds is not None:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(seconds / 2)

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Within the block, the configuration is read again."""
        self.reloads()
        try:
            yield
        finally:
            self.reloaded()

    def reloads(self) -> None:
        """Tell that the configuration is read again, or another image of the process takes over."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """Tell that this is over."""
        self.tell("READY=1")

    def inherited(self) -> dict[str, str]:
        """Return the variables for another image of this process; its sockets it has by other means."""
        return {name: value for name, value in self.variables.items() if not name.startswith("LISTEN_")}


def _adopted(number: int) -> socket.socket:
    """Return a descriptor as our own listener, which no child inherits."""
    try:
        found = socket.socket(fileno=number)
    except OSError as error:
        raise PassedSocketUnusable(f"The socket that the service manager passed is none ({error.strerror}).") from None
    found.set_inheritable(False)
    found.setblocking(False)
    if found.family not in {socket.AF_INET, socket.AF_INET6} or not _listens(found):
        found.close()
        raise PassedSocketUnusable(
            "The socket that the service manager passed is no TCP socket that listens. In its unit write "
            "ListenStream=ADDRESS:PORT and Accept=no."
        )
    return found


def _listens(one: socket.socket) -> bool:
    return one.type == socket.SOCK_STREAM and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0
