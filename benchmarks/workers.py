"""One model over two workers: tokens per second through the daemon's TLS, against llama.cpp's plain `--rpc`.

    .venv/bin/python -m benchmarks.workers [ROUNDS] [TOKENS]

Both run the same engine and the same RPC servers on this machine, in turns, on a model of 400 MiB, every byte of
which a token reads. One layer lies on each worker. The goal is 0.9; what TLS adds to a token is the same for any size.
"""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.heavy import write_heavy_gguf
from tests.support.engine_binary import require_engine_binary
from tests.workers.stage import daemon_with_workers

_MIB = 400
_SECONDS = 300.0
_NAMES = ("one", "two")
_ENGINE = {"ctx_size": 4096, "parallel": 1, "threads": 1, "cache_ram": 0}


def main(rounds: int = 5, tokens: int = 60) -> int:
    """Run everything and print."""
    binary = require_engine_binary()
    with tempfile.TemporaryDirectory(prefix="rpc-") as scratch:
        model = Path(scratch) / "heavy.gguf"
        write_heavy_gguf(model, _MIB, used=64)
        plain, ours = [], []
        with _plain(binary, model) as direct, _supervised(binary, model) as through:
            for number in range(rounds + 1):
                rates = _rate(direct, tokens), _rate(through, tokens)
                if number:  # the first one warms up
                    plain.append(rates[0])
                    ours.append(rates[1])
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, plain, strict=True))
    print("| | tokens/s |")
    print("|---|---|")
    print(f"| `--rpc` | {statistics.median(plain):.1f} |")
    print(f"| workers, mutual TLS | {statistics.median(ours):.1f} |")
    print(f"| ratio (goal 0.9) | {ratio:.2f} |")
    added = statistics.median(1000 / mine - 1000 / theirs for mine, theirs in zip(ours, plain, strict=True))
    print(f"| added to a token | {added:.2f} ms |")
    print(json.dumps({"plain": plain, "ours": ours, "ratio": ratio}))
    return 0


def _rate(client: httpx.Client, tokens: int) -> float:
    """Tokens per second of one answer, as the engine measures them."""
    body = {"model": "heavy", "prompt": "abcdefgh", "n_predict": tokens, "ignore_eos": True, "cache_prompt": False}
    answer = client.post("/completion", json=body)
    answer.raise_for_status()
    rate: float = answer.json()["timings"]["predicted_per_second"]
    return rate


@contextlib.contextmanager
def _plain(binary: Path, model: Path) -> Iterator[httpx.Client]:
    """An engine with `--rpc` and its two workers."""
    program = binary.resolve().with_name("ggml-rpc-server")
    ports = [_free_port() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        for port in ports[:2]:
            _run(stack, [str(program), "-H", "127.0.0.1", "-p", str(port), "-d", "CPU"])
        for port in ports[:2]:
            _listens(port)
        options = [word for name, value in _ENGINE.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        _run(
            stack,
            [
                *(str(binary), "-m", str(model), "--port", str(ports[2]), *options),
                *("--rpc", ",".join(f"127.0.0.1:{port}" for port in ports[:2])),
                *("--device", "RPC0,RPC1", "--n-gpu-layers", "99", "--tensor-split", "1,1", "--fit", "off"),
            ],
        )
        client = stack.enter_context(_client(f"http://127.0.0.1:{ports[2]}"))
        until = time.monotonic() + _SECONDS
        while not _healthy(client):
            assert time.monotonic() < until
            time.sleep(0.1)
        yield client


@contextlib.contextmanager
def _supervised(binary: Path, model: Path) -> Iterator[httpx.Client]:
    """The same through the daemon."""
    settings: dict[str, Any] = {"file": str(model), "device": [f"{name}/CPU" for name in _NAMES], **_ENGINE}
    settings["tensor_split"] = [1, 1]
    with (
        daemon_with_workers(binary, _NAMES, {"models": {"heavy": settings}}) as (daemon, _),
        _client(daemon.url) as client,
    ):
        client.post("/api/v1/models/load", json={"target": "heavy"}).raise_for_status()
        yield client


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=_SECONDS, trust_env=False)


def _run(stack: contextlib.ExitStack, argv: list[str]) -> None:
    process = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    stack.callback(process.kill)


def _healthy(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return client.get("/health").status_code == 200
    return False


def _listens(port: int) -> None:
    until = time.monotonic() + _SECONDS
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        assert time.monotonic() < until
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
