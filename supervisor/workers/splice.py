"""Pass bytes between two connections, each as fast as the other takes them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

_HIGH: Final = 1 << 20  # bytes that wait in one direction before its source is read no more
_EARLY: Final = 1 << 20  # bytes that may come although nothing is to be read yet


class Side(asyncio.Protocol):
    """One of the two connections. What comes before it has a `peer` waits here and in the system's buffers.

    Attributes:
        gone: set once the connection is closed.

    Args:
        passed: told that bytes came here, which go to the other side.
        ended: told, once, that this connection is at its end; nothing is closed by that.
    """

    def __init__(self, passed: Callable[[], None], ended: Callable[[], None]) -> None:
        self.peer: Side | None = None
        self._transport: asyncio.Transport | None = None
        self._passed = passed
        self._ended = ended
        self._over = False
        self._early = bytearray()
        self.gone = asyncio.Event()

    @property
    def over(self) -> bool:
        """True once this connection is at its end."""
        return self._over

    def ends(self) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """Return host and port of the other end and of this one; None where there is no connection any more."""
        if self._transport is None or self._over:
            return None
        theirs, ours = (self._transport.get_extra_info(name) for name in ("peername", "sockname"))
        return None if theirs is None or ours is None else ((theirs[0], theirs[1]), (ours[0], ours[1]))

    def join(self, other: Side) -> None:
        """Pass bytes in both directions from now on."""
        self.peer, other.peer = other, self
        for one in (self, other):
            early, one._early = one._early, bytearray()
            if early:
                one.data_received(early)
            if one._transport is not None and not one._transport.is_closing():
                one._transport.resume_reading()

    def take(self, transport: asyncio.Transport) -> None:
        """Go on with a connection that another protocol has begun; its reading is paused."""
        transport.pause_reading()
        transport.set_protocol(self)
        self.connection_made(transport)

    def close(self) -> None:
        """Close this connection, without what has not been sent."""
        self._over = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:  # an answer of a few bytes waits for nothing
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=_HIGH)
        self._transport.pause_reading()

    def data_received(self, data: bytes | bytearray) -> None:
        peer = self.peer
        if peer is None:
            self._early += data
            if len(self._early) > _EARLY:
                self.close()
        elif peer._transport is not None:
            self._passed()
            peer._transport.write(data)

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self._end()

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer._transport is not None:
            self.peer._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer._transport is not None and not self.peer._transport.is_closing():
            self.peer._transport.resume_reading()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._ended()
