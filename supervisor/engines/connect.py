"""Connect to an engine: at its Unix socket, or at a port of this machine."""

from __future__ import annotations

import asyncio
import socket

from supervisor.core.takeover.carried import Address

__all__ = ["Address", "EngineUnreachable", "NotTaken", "connected"]

_CONNECT_S = 10.0
_RETRY_S = 0.005


class EngineUnreachable(Exception):
    """The engine does not take the connection, broke it off, or does not speak HTTP."""


class NotTaken(EngineUnreachable):
    """The engine does not take the connection, so it has seen nothing of the request."""


async def connected(path: Address) -> socket.socket:
    """Return a connection, at once; only an engine with a full queue of connections is asked again.

    Raises NotTaken.
    """
    if not isinstance(path, str):
        return await _connected_to_port(path)
    loop = asyncio.get_running_loop()
    until = loop.time() + _CONNECT_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.connect(path)
        except OSError as error:
            connection.close()
            if not isinstance(error, BlockingIOError) or loop.time() > until:
                raise NotTaken(f"The engine cannot be reached at {path}: {error}.") from error
            await asyncio.sleep(_RETRY_S)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


async def _connected_to_port(address: tuple[str, int]) -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(_CONNECT_S):
            await asyncio.get_running_loop().sock_connect(connection, address)
    except (OSError, TimeoutError) as error:
        connection.close()
        host, port = address
        raise NotTaken(f"The engine cannot be reached at {host}:{port}: {error}.") from error
    except BaseException:
        connection.close()
        raise
    return connection
