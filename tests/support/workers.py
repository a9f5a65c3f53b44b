"""llama.cpp's RPC workers on the loopback interface: devices for machines that have none."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.ports import free_port


@contextlib.contextmanager
def rpc_worker(engine_binary: Path) -> Iterator[str]:
    """One worker, the program beside `engine_binary`, or a skip; yields its `host:port` when it listens."""
    program = engine_binary.resolve().with_name("ggml-rpc-server")
    if not program.is_file():
        pytest.skip(f"no {program.name} beside the engine")
    port = free_port()
    argv = [str(program), "-H", "127.0.0.1", "-p", str(port), "-t", "1"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(process, port)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, "the worker ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < until, "the worker does not listen"
            time.sleep(0.02)
