"""Names for the engines' Unix sockets: short, fresh for every start, in a folder of their own.

The kernel takes 107 bytes of path (103 on macOS), and llama-server leaves the file behind and refuses to bind to one
that exists: hence a short folder, a random name, and `unlink` by the engine's owner. Platforms without Unix sockets
would need a loopback port and a random key; they are refused with an error.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from supervisor.errors import EngineStartFailed
from supervisor.system.owned import private_folder

LONGEST_PATH = 100  # bytes; below every system's limit


def free_port(host: str) -> int:
    """Return a TCP port that nobody listens on now; somebody else may take it before it is used.

    Raises EngineStartFailed where there is none.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
            return port
    except OSError as error:
        raise EngineStartFailed(f"no port on {host} for the engine: {error}") from error


def fresh_socket(runtime: Path) -> Path:
    """Choose a path for a new socket in `runtime`, which is made private if needed; nothing is bound yet.

    Raises EngineStartFailed where the path would be too long or the folder cannot be ours.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise EngineStartFailed("this platform has no Unix sockets, which engines listen on; Linux and macOS do")
    path = runtime / f"{secrets.token_hex(4)}.sock"
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise EngineStartFailed(
            f"the socket path {path} is over {LONGEST_PATH} bytes; set XDG_RUNTIME_DIR to a shorter folder"
        )
    try:
        private_folder(runtime)
    except OSError as error:
        raise EngineStartFailed(f"no private folder for sockets: {error}") from error
    return path
