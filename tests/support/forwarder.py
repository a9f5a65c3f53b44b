"""An engine's Unix socket as a port of this machine, for clients that know no other."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def forwarded(path: str) -> Iterator[str]:
    """The address under which what listens at `path` can be reached within the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, path))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, path: str) -> None:
    pairs = []
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            pairs.append(threading.Thread(target=_serve, args=(client, path)))
            pairs[-1].start()
    for pair in pairs:
        pair.join()


def _serve(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as engine:
        engine.connect(path)
        with contextlib.suppress(OSError):
            engine.sendall(_alone(client.recv(1 << 16)))
        back = threading.Thread(target=_copy, args=(engine, client))
        back.start()
        _copy(client, engine)
        back.join()


def _alone(beginning: bytes) -> bytes:
    """The beginning of a request, as of the connection's only one.

    llama-server ends a connection after 5 s at rest, and a request that is on its way then is lost. A client beside
    busy programs may be that late.
    """
    line, end, rest = beginning.partition(b"\r\n")
    return b"".join((line, end, b"Connection: close\r\n" if end else b"", rest))


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until either side ends, then end both: an engine has to see that its client has left."""
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
