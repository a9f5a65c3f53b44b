"""Ask a llama-server for its devices, and RPC workers whether they can be asked."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from supervisor.core.devices.engine_list import Listed, parse_device_list
from supervisor.core.devices.visibility import MASKS
from supervisor.probe.tool import ProbeFailed, run_tool

_WORKER_SECONDS = 1.5  # a connection that was turned away is tried again after one
# Nothing is to be known of the machine's own GPUs while a worker is asked: no context, no wait for a driver.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1", "GGML_VK_VISIBLE_DEVICES": ""}


def identity(binary: Path, env: Mapping[str, str]) -> tuple[object, ...]:
    """Return the key for which a remembered list stays valid: the file, and the variables that hide devices."""
    try:
        found = binary.resolve().stat()
    except OSError as error:
        raise ProbeFailed(f"{binary} cannot be read: {error.strerror}") from error
    masks = tuple(env.get(name) for name in MASKS)
    return (str(binary), found.st_ino, found.st_size, found.st_mtime_ns, *masks)


def list_devices(binary: Path, env: Mapping[str, str], limit_s: float) -> tuple[Listed, ...]:
    """Return the machine's own devices by `--list-devices` in this environment. Raises ProbeFailed."""
    return parse_device_list(run_tool([str(binary), "--list-devices"], _child_env(env), limit_s))


def list_worker(binary: Path, endpoint: str, env: Mapping[str, str], limit_s: float) -> tuple[Listed, ...]:
    """Return the devices of one RPC worker. Raises ProbeFailed.

    `--rpc` comes first: llama-server lists and leaves as soon as it reads `--list-devices`.
    """
    argv = [str(binary), "--rpc", endpoint, "--list-devices"]
    listed = parse_device_list(run_tool(argv, {**_child_env(env), **_NO_GPU}, limit_s))
    return tuple(one for one in listed if one.backend == "rpc")


def worker_is_free(endpoint: str, limit_s: float) -> bool:
    """Return whether a worker would answer now. Raise ProbeFailed where nobody listens.

    It serves one client at a time; one more waits to be accepted, and others cannot even connect. Nothing is sent to
    it: a worker that has time ends a client at once that only closes its side. It would answer a greeting later, when
    nobody is there, and that kills ggml-rpc-server (SIGPIPE). Where nobody listens, llama-server would abort.

    It serves one client at a time; one more waits to be accepted, and others cannot even connect. Nothing is said to
    it: a client that only ends its side is ended at once by a worker that has time. A greeting would be answered
    later, when nobody is there, and that kills ggml-rpc-server (SIGPIPE). Raises ProbeFailed where nobody listens:
    llama-server would abort.
    """
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=min(limit_s, _WORKER_SECONDS)) as connection:
            with contextlib.suppress(ConnectionError):
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
            return True
    except TimeoutError:
        return False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProbeFailed(f"no worker answers at {endpoint} ({reason}); start ggml-rpc-server there") from error


def _child_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of engines, without the caller's own llama-server settings and without a debugger."""
    kept = {name: value for name, value in env.items() if not name.startswith("LLAMA_ARG_")}
    return {**kept, "GGML_NO_BACKTRACE": "1", "PATH": env.get("PATH", os.defpath)}
