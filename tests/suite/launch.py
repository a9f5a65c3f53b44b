"""Stands in llama-server's place: asks the zygote for a daemon with these arguments, and lives as long as it does.

Run as `python -S -E launch.py SOCKET llama-server's arguments`; it imports little, so it starts at once.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import sys


def main(path: str, arguments: list[str]) -> int:
    """Return the daemon's exit code."""
    asked = {"arguments": arguments, "folder": os.getcwd(), "variables": dict(os.environ)}
    handle = array.array("i", [1])
    with socket.socket(socket.AF_UNIX) as zygote:
        zygote.connect(path)
        zygote.sendmsg([json.dumps(asked).encode() + b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle)])
        signal.signal(signal.SIGTERM, lambda *_: zygote.shutdown(socket.SHUT_WR))
        return int(zygote.recv(16) or b"1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
