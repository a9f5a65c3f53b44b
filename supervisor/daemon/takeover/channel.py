"""The connection between a daemon and the copy of the one before: messages, one a packet, some with a socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

_LONGEST = 1 << 16  # bytes of one message
_AT_ONCE = 64  # messages that are read before others on the loop are served


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a new connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Channel(Generic[T]):
    """One end.

    Args:
        end: belongs to the channel from now on.
        kind: the type of what the other side tells.
    """

    def __init__(self, end: socket.socket, kind: type[T]) -> None:
        end.setblocking(False)
        self._end = end
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._unsent: deque[tuple[bytes, socket.socket | None]] = deque()
        self._heard: Callable[[T, socket.socket | None], None] | None = None
        self._over: Callable[[], None] | None = None
        self._closed = False

    @property
    def descriptor(self) -> int:
        """The number under which the next image of this process has it."""
        return self._end.fileno()

    def start(self, heard: Callable[[T, socket.socket | None], None], over: Callable[[], None]) -> None:
        """Listen: `heard` gets each message and the socket that came with it, `over` is called once at the end."""
        self._heard, self._over = heard, over
        asyncio.get_running_loop().add_reader(self._end, self._read)

    def send(self, message: msgspec.Struct, with_: socket.socket | None = None) -> None:
        """Send a message in its turn, and a socket with it, which belongs to the channel from now on."""
        if self._closed:
            if with_ is not None:
                with_.close()
            return
        self._unsent.append((msgspec.json.encode(message), with_))
        if len(self._unsent) == 1:
            self._write()

    @property
    def empty(self) -> bool:
        """True if nothing is left to be sent."""
        return not self._unsent

    def leave(self) -> None:
        """Have nothing to do with it any more; the other side does not notice, as another process has this end too."""
        self._forget()
        self._end.close()

    def close(self) -> None:
        """End it; the other side is told by that."""
        self.leave()

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            if self._closed:
                return
            try:
                data, descriptors, _, _ = socket.recv_fds(self._end, _LONGEST, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:  # the other side has closed it and left something unread; what it said is here
                continue
            except OSError:
                data, descriptors = b"", []
            came = socket.socket(fileno=descriptors[0]) if descriptors else None
            if not data:
                self._end_of_it()
                return
            self._take(data, came)

    def _take(self, data: bytes, came: socket.socket | None) -> None:
        try:
            message = self._decoder.decode(data)
        except ValueError:  # another version's, which ours knows nothing of
            if came is not None:
                came.close()
            return
        if self._heard is not None:
            self._heard(message, came)

    def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsent:
            data, with_ = self._unsent[0]
            try:
                socket.send_fds(self._end, [data], [] if with_ is None else [with_.fileno()])
            except BlockingIOError:
                loop.add_writer(self._end, self._write)
                return
            except OSError:  # nobody reads it; what was said before may yet be heard here
                self._drop_unsent()
                break
            self._unsent.popleft()
            if with_ is not None:
                with_.close()
        loop.remove_writer(self._end)

    def _end_of_it(self) -> None:
        over, self._over = self._over, None
        self._forget()
        if over is not None:
            over()

    def _forget(self) -> None:
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._end)
        loop.remove_writer(self._end)
        self._drop_unsent()

    def _drop_unsent(self) -> None:
        for _, with_ in self._unsent:
            if with_ is not None:
                with contextlib.suppress(OSError):
                    with_.close()
        self._unsent.clear()
