"""Starts daemons quickly: a process that has imported the program forks one for each llama-server that is asked for.

`python -m tests.suite.zygote SOCKET ENGINE HOMES` listens. `launch.py`, run in llama-server's place, sends its
arguments, folder, variables and output, and holds the connection as long as it lives.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress

from tests.suite.shim import serve

_LOADED = ("supervisor.cli.verbs.serve", "supervisor.daemon.run", "supervisor.daemon.build")
_MAX = 1 << 20
_HANDLES = 256


def listen(path: str, engine: str, homes: str) -> None:
    """Serve until standard input closes."""
    for name in _LOADED:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as events:
        server.bind(path)
        server.listen()
        events.register(server, selectors.EVENT_READ)
        events.register(sys.stdin, selectors.EVENT_READ)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            for key, _ in events.select():
                if key.fileobj is sys.stdin:
                    return
                accepted, _address = server.accept()
                if os.fork() == 0:
                    _keep(accepted, engine, homes)
                accepted.close()


def _keep(client: socket.socket, engine: str, homes: str) -> None:
    """In a fork: run the daemon in another one, end it when the client is done, and tell the client how it ended."""
    asked, output = _received(client)
    daemon = os.fork()
    if daemon == 0:
        _become(asked, output, engine, homes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    with selectors.DefaultSelector() as events:
        events.register(client, selectors.EVENT_READ)
        events.register(reader, selectors.EVENT_READ)
        ended, status = os.waitpid(daemon, os.WNOHANG)
        while not ended:
            for key, _ in events.select():
                if key.fileobj is client:
                    os.kill(daemon, signal.SIGTERM)
                    events.unregister(client)
                else:
                    os.read(reader, 1)
            ended, status = os.waitpid(daemon, os.WNOHANG)
    with suppress(OSError):
        client.sendall(b"%d" % (os.waitstatus_to_exitcode(status) % 256))
    os._exit(0)


def _received(client: socket.socket) -> tuple[dict[str, object], int]:
    """What a client asks for, and its standard output."""
    data, ancillary, _, _ = client.recvmsg(_MAX, socket.CMSG_SPACE(4))
    while not data.endswith(b"\n"):
        data += client.recv(_MAX)
    handles = array.array("i")
    handles.frombytes(ancillary[0][2])
    return json.loads(data), handles[0]


def _become(asked: dict[str, object], output: int, engine: str, homes: str) -> None:
    arguments, folder, variables = asked["arguments"], asked["folder"], asked["variables"]
    assert isinstance(arguments, list)
    assert isinstance(variables, dict)
    code = 1
    try:
        os.chdir(str(folder))
        os.environ.clear()
        os.environ.update(variables)
        for number, handle in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(handle, number)
        os.closerange(3, _HANDLES)  # the client's connection among them: its end is the keeper's to tell
        code = serve(engine, homes, *arguments)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    listen(*sys.argv[1:])
