"""The first line of Ollama's API beside the first event of OpenAI's, of one daemon, in turns.

    .venv/bin/python -m benchmarks.doors [--requests N] [--engine PATH]

Every request is a streamed chat of a few tokens with a connection of its own; its time ends when the first event or
line has come. Both paths ask the same model the same thing, one after the other, so that what else the machine does
meets both. The last line is the same as JSON; the exit status is 1 where the ratio of the medians exceeds 1.15.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.model import make_model
from benchmarks.report import percentile
from benchmarks.servers import MODEL, supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

MOST: Final = 1.15
"""The ratio that is promised."""

_WARM: Final = 20
_LIMIT_S: Final = 60.0
_MESSAGES: Final = [{"role": "user", "content": "Say something."}]
_PATHS: Final[Mapping[str, tuple[str, Mapping[str, object], bytes]]] = {
    "OpenAI": ("/v1/chat/completions", {"stream": True, "max_tokens": 4}, b"data:"),
    "Ollama": ("/api/chat", {"options": {"num_predict": 4}}, b"{"),
}


def first(port: int, name: str) -> float:
    """Milliseconds until the first event or line of an answer has come."""
    path, more, begins = _PATHS[name]
    body = json.dumps({"model": MODEL, "messages": _MESSAGES, **more}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    begun = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=_LIMIT_S) as connection:
        connection.sendall(head.encode() + body)
        arrived = b""
        while begins not in arrived.partition(b"\r\n\r\n")[2]:
            piece = connection.recv(1 << 16)
            if not piece:
                raise RuntimeError(f"{path} answered {arrived[:200]!r}")
            arrived += piece
        taken = time.perf_counter() - begun
        while connection.recv(1 << 16):
            pass
    return taken * 1000


def measure(port: int, requests: int, ask: Callable[[int, str], float] = first) -> dict[str, object]:
    """Medians over so many requests of each path, in turns, and their ratio."""
    times: dict[str, list[float]] = {name: [] for name in _PATHS}
    for number in range(-_WARM, requests):
        for name in sorted(_PATHS, reverse=bool(number % 2)):
            taken = ask(port, name)
            if number >= 0:
                times[name].append(taken)
    medians = {name: percentile(found, 50) for name, found in times.items()}
    return {
        "requests": requests,
        **{f"{name} [ms]": round(median, 3) for name, median in medians.items()},
        "Ollama/OpenAI": round(medians["Ollama"] / medians["OpenAI"], 3),
    }


def main() -> int:
    """Run the benchmark; 1 if the ratio is larger than promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--engine", type=Path)
    options = parser.parse_args()
    binary = locate(places(os.environ), os.environ, options.engine).path
    with tempfile.TemporaryDirectory(prefix="doors-") as name:
        folder = Path(name)
        make_model(folder / "bench.gguf")
        with supervisor(binary, folder / "bench.gguf", folder, 4) as server:
            found = measure(server.place.port, options.requests)
    for what, value in found.items():
        print(f"{what:20} {value}")
    print(json.dumps(found))
    return 1 if float(str(found["Ollama/OpenAI"])) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
