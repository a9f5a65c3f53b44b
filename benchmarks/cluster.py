"""A request through another node, against one to the node that has the model: time added, and CPU of the front door.

    .venv/bin/python -m benchmarks.cluster [ROUNDS] [REQUESTS] [TOKENS]
    .venv/bin/python -m benchmarks.cluster lost [KILLS] [CUTS]

Two daemons on this machine are one cluster; the second one has the model. Requests go through the first one and to the
second one in turns. The goals: 1.0 ms added to the median of a small request, and no more CPU for an event that is
passed on than for one of a local engine.

`lost` measures the time from the death of the node that answers a stream, or from when it stands still, to the error
that ends the stream. The goals: 1 s, and 20 s, which is how long a claim lasts.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import wait_until
from tests.support.engine_binary import require_engine_binary
from tests.support.scripted import ScriptedModels

_ENGINE = {"ctx_size": 32768, "parallel": 1, "cache_ram": 0}


def main(rounds: int = 5, requests: int = 200, tokens: int = 25000) -> int:
    """Run everything and print."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as scratch:
        file = ScriptedModels(Path(scratch))("and on ", endless=True, n_ctx=32768)
        models = {"models": {"far": {"file": str(file), **_ENGINE}}}
        with cluster_of(require_engine_binary(), one={}, two=models) as (one, two):
            small = [(_small(two, requests), _small(one, requests)) for _ in range(rounds + 1)][1:]
            events = [(_cpu_of_event(two, tokens), _cpu_of_event(one, tokens)) for _ in range(rounds + 1)][1:]
    added = statistics.median(through - direct for direct, through in small)
    ratio = statistics.median(through / direct for direct, through in events)
    print("| | direct | through another node |")
    print("|---|---|---|")
    _row("small request, median, ms", small)
    _row("CPU of the daemon that is asked, µs an event", events)
    print(f"\nadded to a small request: {added:.2f} ms (goal 1.0); CPU of an event: {ratio:.2f} (goal 1.0)")
    print(json.dumps({"small_ms": small, "event_us": events, "added_ms": added, "ratio": ratio}))
    return 0


def lost(kills: int = 20, cuts: int = 5) -> int:
    """Kill and freeze the node that answers; print how long clients of the other one wait for the end."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as scratch:
        file = ScriptedModels(Path(scratch))("and on ", endless=True, n_ctx=131072)
        models = {"models": {"far": {"file": str(file), **_ENGINE, "ctx_size": 131072}}}
        with cluster_of(require_engine_binary(), one={}, two=models) as (one, two):
            killed = [_ended(one, two, signal.SIGKILL) for _ in range(kills)]
            frozen = [_ended(one, two, signal.SIGSTOP) for _ in range(cuts)]
    for name, took in (("killed", killed), ("frozen", frozen)):
        if took:
            print(f"| {name} | {len(took)} | {statistics.median(took):.3f} | {max(took):.3f} |")
    print(json.dumps({"killed_s": killed, "frozen_s": frozen}))
    return 0


def _ended(door: Node, node: Node, number: signal.Signals) -> float:
    """Seconds from a signal to the node that answers a stream to the error event at the front door."""
    wait_until(lambda: door.sees(node).get("state") == "ready", "it is there")
    body = {**_body(100_000), "stream": True}
    with httpx.stream(
        "POST", f"{door.daemon.url}/v1/chat/completions", json=body, timeout=60, trust_env=False
    ) as answer:
        answer.raise_for_status()
        lines = answer.iter_lines()
        next(line for line in lines if '"content"' in line)
        at = time.perf_counter()
        node.daemon.process.send_signal(number)
        next(line for line in lines if '"node_lost"' in line)
        took = time.perf_counter() - at
    if number == signal.SIGSTOP:
        node.daemon.process.send_signal(signal.SIGCONT)
    else:
        node.kill()
        node.start()
    return took


def _row(name: str, pairs: list[tuple[float, float]]) -> None:
    direct, through = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"| {name} | {direct:.2f} | {through:.2f} |")


def _small(node: Node, requests: int) -> float:
    """Milliseconds of a request for one token, the median."""
    took = []
    with httpx.Client(base_url=node.daemon.url, timeout=60, trust_env=False) as client:
        for _ in range(requests):
            began = time.perf_counter()
            client.post("/v1/chat/completions", json=_body(1)).raise_for_status()
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def _cpu_of_event(node: Node, tokens: int) -> float:
    """Microseconds of CPU that the daemon that is asked takes for an event of a stream."""
    process = psutil.Process(node.daemon.pid)
    before = sum(process.cpu_times()[:2])
    with httpx.stream(
        "POST",
        f"{node.daemon.url}/v1/chat/completions",
        json={**_body(tokens), "stream": True},
        timeout=120,
        trust_env=False,
    ) as answer:
        answer.raise_for_status()
        count = sum(piece.count(b"\n\n") for piece in answer.iter_raw())
    return (sum(process.cpu_times()[:2]) - before) * 1e6 / count


def _body(tokens: int) -> dict[str, Any]:
    return {"model": "far", "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens}


if __name__ == "__main__":
    sys.exit(lost(*map(int, sys.argv[2:])) if sys.argv[1:2] == ["lost"] else main(*map(int, sys.argv[1:])))
