"""A model's file from another node, against the same from a hub: bytes a second, and what requests notice of it.

    .venv/bin/python -m benchmarks.files [MIB] [ROUNDS]

Two daemons on this machine are one cluster; the hub is a plain server on this machine, too, without TLS. In each round
the first node downloads a new file from the hub, and the second one from the first. Meanwhile a client asks the first
node for small answers, one after the other: their time beside both is compared with that beside nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.cluster.stage import Node, cluster_of
from tests.support.engine_binary import require_engine_binary
from tests.support.hub import LocalHub, local_hub
from tests.support.scripted import ScriptedModels

_MIB = 1 << 20


def main(mib: int = 512, rounds: int = 3) -> int:
    """Run everything and print."""
    with tempfile.TemporaryDirectory(prefix="files-") as scratch, local_hub() as hub:
        talker = ScriptedModels(Path(scratch))("one two three", n_ctx=4096)
        models = {"small": {"file": str(talker), "ctx_size": 4096, "parallel": 1, "cache_ram": 0}}
        own = {"hub": {"endpoint": hub.url}, "models": models}
        with cluster_of(require_engine_binary(), one=own, two={"hub": {"endpoint": hub.url}}) as (one, two):
            alone = _asked_during(one, lambda: time.sleep(5))
            found = [_round(hub, one, two, talker.read_bytes(), (mib, number)) for number in range(rounds)]
    rates = {who: statistics.median(mib / one[who] for one in found) for who in ("hub", "node")}
    waits = {who: statistics.median(one[f"{who}_wait"] for one in found) for who in ("hub", "node")}
    print(f"| {mib} MiB | MiB/s | small request beside it, median [ms] |\n|---|---|---|")
    print(f"| from the hub | {rates['hub']:.0f} | {waits['hub']:.2f} |")
    print(f"| from another node | {rates['node']:.0f} | {waits['node']:.2f} |")
    print(f"\nbeside nothing: {alone:.2f} ms")
    print(json.dumps({"rounds": found, "alone_ms": alone}))
    return 0


def _round(hub: LocalHub, one: Node, two: Node, talker: bytes, what: tuple[int, int]) -> dict[str, float]:
    """Seconds of both downloads of a new file, checks included, and milliseconds of requests beside them."""
    mib, number = what
    name = f"bench/file{number}"
    hub.add(name, {"m-Q8_0.gguf": talker + os.urandom(_MIB) * (mib - 1) + bytes(_MIB - len(talker) % _MIB)})
    found: dict[str, float] = {}
    for who, node in (("hub", one), ("node", two)):
        before = hub.sent_bytes("/storage/")

        def pull(node: Node = node, who: str = who) -> None:
            began = time.perf_counter()
            node.daemon.http.post("/api/v1/models", json={"model": f"{name}:Q8_0"}, timeout=600).raise_for_status()
            found[who] = time.perf_counter() - began

        found[f"{who}_wait"] = _asked_during(one, pull)
        sent = hub.sent_bytes("/storage/") - before
        assert (sent == 0) == (who == "node"), f"the hub has sent {sent} bytes"
    return found


def _asked_during(node: Node, work: Callable[[], None]) -> float:
    """Milliseconds of a small request while something else goes on, the median."""
    took: list[float] = []
    thread = threading.Thread(target=work)
    with httpx.Client(base_url=node.daemon.url, timeout=60, trust_env=False) as client:
        body = {"model": "small", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        client.post("/v1/chat/completions", json=body).raise_for_status()
        thread.start()
        while thread.is_alive():
            began = time.perf_counter()
            client.post("/v1/chat/completions", json=body).raise_for_status()
            took.append((time.perf_counter() - began) * 1000)
        thread.join()
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
