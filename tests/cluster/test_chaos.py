"""Three daemons, three NATS servers, clients of all, and everything that can end or hang does so, by a seed."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cluster.chaos import Crowd, Havoc
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import wait_until
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

SAID = "one two three four five."
SHORT = {"ctx_size": 8192, "parallel": 2, "cache_ram": 0}
LONG = {"ctx_size": 16384, "parallel": 2, "cache_ram": 0}
KNOWN = {"one": ("all", "some", "first"), "two": ("all", "some", "second"), "three": ("all", "third")}


@contextlib.contextmanager
def cluster(engine: Path, scripted_model: ScriptedModel) -> Iterator[list[Node]]:
    short = {"file": str(scripted_model(SAID, n_ctx=8192)), **SHORT}
    long = {"file": str(scripted_model("and on ", endless=True, n_ctx=16384)), **LONG}
    own: dict[str, Any] = {
        name: {"models": {**dict.fromkeys(models, short), "long": long}} for name, models in KNOWN.items()
    }
    with cluster_of(engine, servers=3, **own) as nodes:
        yield nodes


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
def test_everything_ends_well(engine_binary: Path, scripted_model: ScriptedModel, seed: int) -> None:
    with cluster(engine_binary, scripted_model) as nodes:
        chaos(nodes, seed, 20)


@pytest.mark.full
def test_everything_ends_well_in_short(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    with cluster(engine_binary, scripted_model) as nodes:
        chaos(nodes, 0, 3)


def chaos(nodes: list[Node], seed: int, count: int) -> None:
    """Bring about so many faults under load; look at everything afterwards."""
    models = sorted({model for known in KNOWN.values() for model in known})
    crowd = Crowd(nodes, models, "long", seed)
    havoc = Havoc(crowd, random.Random(seed))
    try:
        with crowd.asking():
            crowd.more(5)
            havoc.wreak(count)
            crowd.more(20)
        assert not crowd.faults, "\n".join(crowd.faults)
        converges(nodes, [*models, "long"])
        nothing_is_left(nodes)
    except BaseException:
        havoc.over()
        raise
    finally:
        sys.stdout.write(f"seed {seed}: {havoc.told}\n{crowd.counts}\n")


def converges(nodes: list[Node], models: list[str]) -> None:
    """All see each other, and each has an answer for each model; whoever has a model has the right to."""
    for node in nodes:
        wait_until(lambda: node.cluster()["connected"], f"{node.name} is connected")  # noqa: B023 - called at once
        for other in nodes:
            wait_until(lambda: node.sees(other).get("state") == "ready", f"{node.name} sees {other.name}")  # noqa: B023 - called at once
    for node in nodes:
        for model in models:
            wait_until(lambda: answers(node, model), f"{node.name} answers for {model}")  # noqa: B023 - called at once
    for model in models:
        wait_until(lambda: is_claimed(nodes, model), f"each copy of {model} is claimed")  # noqa: B023 - called at once
    for node in nodes:
        wait_until(node.daemon.at_rest, f"no request is left at {node.name}")
        for model in models:
            if node in having([node], model):
                wait_until(lambda: node.daemon.busy_slots(model) == 0, "all slots are free")  # noqa: B023 - called at once


def answers(node: Node, model: str) -> bool:
    """Whether a request there is answered; while others find out what has ended, it may be refused."""
    answer = node.daemon.chat(model, "hi", max_tokens=4)
    assert answer.status_code in {200, 503}, answer.text
    return answer.status_code == 200


def is_claimed(nodes: list[Node], model: str) -> bool:
    """Whether those that have a model are those that all know to have claimed it."""
    have = {node.name for node in having(nodes, model)}
    seen = [{one["name"] for one in node.cluster()["nodes"] if model in one["claims"]} for node in nodes]
    return bool(have) and all(claimed == have for claimed in seen)


def having(nodes: list[Node], model: str) -> list[Node]:
    """The nodes that have an engine of a model."""
    found = []
    for node in nodes:
        states = {one["id"]: one["state"] for one in node.daemon.http.get("/api/v1/models").json()["models"]}
        if states.get(model, "unloaded") not in {"unloaded", "failed"}:
            found.append(node)
    return found


def nothing_is_left(nodes: list[Node]) -> None:
    """Once all is unloaded nothing is claimed; once the daemons end no process and no socket is there."""
    for node in nodes:
        for model in node.daemon.http.get("/api/v1/models").json()["models"]:
            with httpx.Client(base_url=node.daemon.url, trust_env=False) as client:
                client.post("/api/v1/models/unload", json={"model": model["id"], "now": True}, timeout=60)
    for node in nodes:
        wait_until(lambda: quiet(node), f"{node.name} sees nothing loaded, and nothing claimed")  # noqa: B023 - called at once
    below = [one for node in nodes for one in psutil.Process(node.daemon.pid).children(recursive=True)]
    for node in nodes:
        node.end()
    _, alive = psutil.wait_procs(below, timeout=0)
    assert not alive
    homes = [str(node.home) for node in nodes]
    for process in psutil.process_iter(["cmdline"]):
        assert not any(home in word for home in homes for word in process.info["cmdline"] or ()), process
    assert not [path for node in nodes for path in node.home.rglob("*") if path.is_socket()]


def quiet(node: Node) -> bool:
    """Whether a node sees nothing loaded, and nothing claimed."""
    return all(not one["models"] and not one["claims"] for one in node.cluster()["nodes"])
