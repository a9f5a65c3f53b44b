"""Model files from another node: two real daemons, a real NATS server, and a hub that counts what it sends."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from supervisor.cluster.kept import Membership, membership
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import wait_until
from tests.support.hub import LocalHub, local_hub
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

SAID = "Lent by another node."
PADDING = 5 << 20


class Stage:
    """The nodes `one` and `two`, each with a cache of its own, and their hub."""

    def __init__(self, hub: LocalHub, one: Node, two: Node, talker: bytes) -> None:
        self.hub = hub
        self.one = one
        self.two = two
        self.talker = talker

    def model(self, mark: int) -> bytes:
        """A model that no other test has: with bytes at its end, which no reader minds."""
        return self.talker + bytes([mark]) * PADDING


@pytest.fixture(scope="module")
def stage(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[Stage]:
    with local_hub() as hub:
        own = {"hub": {"endpoint": hub.url}, "models": {"shared": {"source": "both/have:Q4_0", "ctx_size": 4096}}}
        with cluster_of(engine_binary, one=own, two=own) as (one, two):
            yield Stage(hub, one, two, scripted_model(SAID, n_ctx=4096).read_bytes())


def pull(node: Node, target: str) -> dict[str, Any]:
    """Have a model on a node's disk."""
    answer = node.daemon.http.post("/api/v1/models", json={"model": target})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def blobs(node: Node) -> Path:
    """Where a node keeps the contents of a/b."""
    return node.home / ".cache/huggingface/hub/models--a--b/blobs"


def test_a_node_takes_a_model_from_the_one_that_has_it(stage: Stage) -> None:
    model = stage.model(1)
    stage.hub.add("a/b", {"m-Q4_0.gguf": model})
    pull(stage.one, "a/b:Q4_0")
    before = stage.hub.sent_bytes("/storage/")
    pull(stage.two, "a/b:Q4_0")
    assert stage.hub.sent_bytes("/storage/") == before
    assert (blobs(stage.two) / sha(model)).read_bytes() == model
    [shown] = [one for one in stage.two.daemon.http.get("/api/v1/disk").json()["models"] if one["repo"] == "a/b"]
    assert shown["problem"] is None
    assert stage.two.daemon.load("a/b:Q4_0")["state"] == "ready"
    assert stage.two.daemon.chat("a/b:Q4_0", "hi").json()["choices"][0]["message"]["content"] == SAID
