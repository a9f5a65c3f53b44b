"""One configuration for all nodes: real daemons, a real NATS server, real engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import wait_until
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

SAID = "one two three four five."
PATH = "/api/v1/cluster/config"


@pytest.fixture(scope="module")
def nodes(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[list[Node]]:
    own = {"mine": entry(scripted_model)}
    with cluster_of(engine_binary, one={}, two={"models": own}) as found:
        yield found


def entry(scripted_model: ScriptedModel, **more: Any) -> dict[str, Any]:
    """A model as a configuration has it."""
    return {"file": str(scripted_model(SAID, n_ctx=8192)), "ctx_size": 8192, "parallel": 2, "cache_ram": 0, **more}


def text_of(**sections: Any) -> str:
    """A configuration: JSON is YAML."""
    return json.dumps(sections, indent=1)


def put(node: Node, text: str, expected: int | None = None) -> httpx.Response:
    """Set a version at a node."""
    return node.daemon.http.post(PATH, json={"text": text, "expected": expected})


def done(node: Node, text: str) -> int:
    """Set a version at a node, which takes it over; its number."""
    answer = put(node, text)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["problem"] is None
    number: int = found["version"]
    return number


def in_force(node: Node, number: int, *others: Node) -> None:
    """Wait until nodes have a version in force, and this one knows."""
    for other in (node, *others):
        wait_until(lambda: node.sees(other)["config_version"] == number, f"{other.name} has {number}")  # noqa: B023 - called at once


def listed(node: Node) -> set[str]:
    """The models that a node lists."""
    return {one["id"] for one in node.daemon.http.get("/v1/models").json()["data"]}


def content(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def test_what_is_set_at_one_node_is_there_on_all(nodes: list[Node], scripted_model: ScriptedModel) -> None:
    one, two = nodes
    number = done(one, text_of(models={"shared": entry(scripted_model, aliases=["ours"])}))
    in_force(one, number, two)
    in_force(two, number, one)
    assert {"shared"} <= listed(one) & listed(two)
    assert content(two.daemon.chat("ours", "hi")) == SAID
    assert content(one.daemon.chat("shared", "hi")) == SAID
    assert [node.has("shared") for node in nodes].count(True) == 1
