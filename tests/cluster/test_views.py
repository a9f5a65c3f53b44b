"""All nodes of a cluster at once: what commands, the REST interface and the metrics of one of them say of the other."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.history.metrics import CLUSTERED, PREFIX
from tests.api.test_metrics import faults as lacking
from tests.api.test_metrics import scraped, value
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import wait_until
from tests.support.schemas import faults
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

ENGINE = {"ctx_size": 8192, "parallel": 2, "cache_ram": 0}


class Stage:
    """The nodes `one`, which knows `near`, and `two`, which knows `far`; both know `both`. Loaded is what has to be."""

    def __init__(self, one: Node, two: Node) -> None:
        self.one = one
        self.two = two

    def nodes(self) -> dict[str, Any]:
        """What one says of all, by name."""
        answer = self.one.daemon.http.get("/api/v1/cluster/nodes")
        assert answer.status_code == 200, answer.text
        assert faults(answer.json(), "get", "/api/v1/cluster/nodes") == []
        return {node["name"]: node for node in answer.json()["nodes"]}

    def hears_of(self, model: str) -> None:
        """Wait until one has heard that two has it loaded."""
        wait_until(lambda: (model, "ready") in loaded(self.one.sees(self.two)), "one has heard of it")


def loaded(node: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["id"], one["state"]) for one in node["models"]]


@pytest.fixture(scope="module")
def stage(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[Stage]:
    short = {"file": str(scripted_model("one two three.", n_ctx=8192)), **ENGINE}
    mine: dict[str, Any] = {"models": {"near": short, "both": {**short, "aliases": ["alias"]}}}
    mine["groups"] = {"either": {"members": ["near", "both"]}}  # on one, near has to leave for both
    theirs = {"models": {"far": short, "both": short}}
    with cluster_of(engine_binary, one=mine, two=theirs) as (one, two):
        one.did("load", "near")
        two.did("load", "far")
        shown = Stage(one, two)
        shown.hears_of("far")
        yield shown


def test_every_node_says_what_it_does(stage: Stage) -> None:
    found = stage.nodes()
    assert list(found) == ["one", "two"]
    assert [found[name]["here"] for name in found] == [True, False]
    for name, model, node in (("one", "near", stage.one), ("two", "far", stage.two)):
        assert found[name]["asked"]
        assert found[name]["why"] is None
        (shown,) = found[name]["models"]
        itself = node.daemon.model(model)
        kept = ("id", "state", "pid", "n_ctx", "n_slots", "leases", "waiting", "pinned", "expires_at")
        assert {key: shown[key] for key in kept} == {key: itself[key] for key in kept}
        assert abs(shown["loaded_at"] - itself["loaded_at"]) < 60  # the clocks of both are this machine's
        devices = node.daemon.http.get("/api/v1/memory").json()["devices"]
        assert [one["name"] for one in found[name]["devices"]] == [one["name"] for one in devices]
        assert [one["total_bytes"] for one in found[name]["devices"]] == [one["total_bytes"] for one in devices]
        (held,) = found[name]["devices"][-1]["held"]
        assert held["model"] == model
        assert held["weights_bytes"] > 0


def test_ps_has_a_column_for_the_node(stage: Stage) -> None:
    head, *rows = stage.one.did("ps").splitlines()
    assert head.split()[:3] == ["NODE", "MODEL", "STATE"]
    words = [row.split() for row in rows if not row.startswith("configuration:")]
    assert [row[:4] for row in words] == [["one", "(this)", "near", "ready"], ["two", "far", "ready", words[1][3]]]
    assert words[1][3] == str(stage.two.daemon.model("far")["pid"])
    told = json.loads(stage.two.did("ps", "--json"))
    assert told["node"] == "two"
    assert [(one["node"], one["id"]) for one in told["models"]] == [("two", "far"), ("one", "near")]
    assert [(one["name"], one["asked"]) for one in told["nodes"]] == [("two", True), ("one", True)]


def test_ps_of_this_node_alone_is_as_in_no_cluster(stage: Stage) -> None:
    head, row, _ = stage.one.did("ps", "--here").splitlines()
    assert head.split()[0] == "MODEL"
    assert row.split()[:2] == ["near", "ready"]
    told = json.loads(stage.one.did("ps", "--here", "--json"))
    assert [one["id"] for one in told["models"]] == ["near"]
    assert not {"node", "nodes"} & told.keys()


def test_top_has_the_devices_and_models_of_all(stage: Stage) -> None:
    lines = stage.one.did("top").splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("two · ready"))
    assert lines[1].startswith("one (this) · ready")
    assert any(line.startswith("host ") for line in lines[2:place])
    assert lines[place + 1].startswith("host ")
    rows = [line.split() for line in lines]
    assert ["›", "one", "(this)", "near", "ready"] in [row[:5] for row in rows]
    assert ["two", "far", "ready"] in [row[:3] for row in rows]


def test_plan_says_which_node_would_get_a_model(stage: Stage) -> None:
    one, two = stage.one, stage.two
    lines = one.did("plan", "both").splitlines()
    assert lines[0] == "both → two: fewer models have to leave there"
    rows = [line.split() for line in lines]
    assert rows[1] == ["NODE", "FITS", "LEAVES", "SPEED", "CONTEXT", "FILES"]
    assert [row[:-6] + row[-1:] for row in rows[2:4]] in (
        [["one", "(this)", "here"], ["two", "here"]],
        [["two", "here"], ["one", "(this)", "here"]],
    )
    assert any(row[:4] == ["one", "(this)", "yes", "near"] for row in rows[2:4])
    assert any(row[:3] == ["two", "yes", "-"] for row in rows[2:4])
    assert "both on CPU" in lines
    answer = one.daemon.http.post("/api/v1/cluster/plan", json={"target": "alias"})
    assert faults(answer.json(), "post", "/api/v1/cluster/plan") == []
    found = answer.json()
    (chosen,) = [offer for offer in found["offers"] if offer["chosen"]]
    assert found["node"] == chosen["node"] == "two"
    alone = two.daemon.http.post("/api/v1/plan", json={"target": "both"}).json()
    assert found["plan"].keys() == alone.keys()
    assert (found["plan"]["arguments"][0], found["plan"]["model"]) == (alone["arguments"][0], "both")
    told = json.loads(one.did("plan", "both", "--json"))
    assert (told["fits"], told["cluster"]["node"]) == (True, "two")
    assert not one.has("both")
    assert not two.has("both"), "nothing was loaded"
    assert one.daemon.chat("both", "hi").status_code == 200
    assert two.has("both"), "the request went where the plan had said"
    two.daemon.http.post("/api/v1/models/unload", json={"model": "both"})
    wait_until(lambda: loaded(one.sees(two)) == [("far", "ready")], "one has heard of it")


def test_plan_of_what_is_loaded_names_its_node(stage: Stage) -> None:
    assert stage.one.did("plan", "far").splitlines()[0] == "far → two: it has it loaded"
    assert stage.two.did("plan", "far").splitlines()[0] == "far → two: it has it loaded"
    assert stage.one.did("plan", "near").splitlines()[0] == "near → one: it has it loaded"


def test_plan_of_what_nobody_has_configured_is_of_the_node_that_is_asked(
    stage: Stage, scripted_model: ScriptedModel
) -> None:
    file = scripted_model("one two three.", n_ctx=8192)
    lines = stage.one.did("plan", str(file)).splitlines()
    assert lines[0] == f"{file} → one: no node has configured it, so it is for the node that is asked"
    assert any(line.endswith(" on CPU") for line in lines)
    missing = stage.one.run("plan", "nowhere")
    assert missing.returncode != 0
    assert "[model_not_found]" in missing.stderr


def test_plan_with_options_or_here_is_of_the_node_that_is_asked(stage: Stage) -> None:
    for words in (("both", "--here"), ("both", "-c", "1k")):
        told = json.loads(stage.one.did("plan", *words, "--json"))
        assert told["evict_models"] == ["near"]
        assert "cluster" not in told
    assert stage.one.run("plan", "far", "--here").returncode != 0, "it does not know it"


def test_a_key_sees_its_models_of_all_nodes(stage: Stage) -> None:
    http = stage.one.daemon.http
    made = http.post("/api/v1/keys", json={"name": "root", "scopes": ["manage"]}).json()["key"]
    root = {"authorization": f"Bearer {made}"}
    try:
        asked = {"name": "reader", "scopes": ["read"], "models": ["f*"]}
        key = {"authorization": f"Bearer {http.post('/api/v1/keys', json=asked, headers=root).json()['key']}"}
        one, two = http.get("/api/v1/cluster/nodes", headers=key).json()["nodes"]
        assert (loaded(one), loaded(two)) == ([], [("far", "ready")])
        assert [held["model"] for node in (one, two) for held in node["devices"][-1]["held"]] == [None, "far"]
    finally:
        http.delete("/api/v1/keys/reader", headers=root)
        http.delete("/api/v1/keys/root", headers=root)


def test_metrics_have_what_is_known_of_every_node(stage: Stage) -> None:
    before = value(scraped(stage.one.daemon), f"{PREFIX}cluster_forwarded_total", node="two")
    for _ in range(3):
        assert stage.one.daemon.chat("far", "hi").status_code == 200
    assert stage.one.daemon.chat("near", "hi").status_code == 200
    families = scraped(stage.one.daemon)
    assert [fault for row in CLUSTERED for fault in lacking(families, row)] == []
    assert value(families, f"{PREFIX}cluster_forwarded_total", node="two") == before + 3
    assert value(families, f"{PREFIX}cluster_forwarded_total") == before + 3  # none to itself
    assert value(families, f"{PREFIX}cluster_connected") == 1
    for name in ("one", "two"):
        assert value(families, f"{PREFIX}cluster_node_up", node=name) == 1
        assert value(families, f"{PREFIX}cluster_node_models", node=name, state="ready") == 1
        assert value(families, f"{PREFIX}cluster_node_slots", node=name) == 2
        assert value(families, f"{PREFIX}cluster_node_free_bytes", node=name) > 0


def test_a_node_that_hangs_does_not_hold_up_what_is_shown(stage: Stage) -> None:
    failed = f"{PREFIX}cluster_forward_failures_total"
    before = value(scraped(stage.one.daemon), failed, node="two")
    stage.two.daemon.process.send_signal(signal.SIGSTOP)
    try:
        done = stage.one.run("ps")
        assert done.returncode == 0
        rows = [line.split() for line in done.stdout.splitlines()]
        assert ["one", "(this)", "near", "ready"] in [row[:4] for row in rows]
        shown = [row[:6] for row in rows if row[0] == "two"]
        told = "shown as it last told" in done.stderr
        assert shown == ([["two", "far", "ready", "-", "-", "-"]] if told else [])
        assert told or "nothing is known of it now" in done.stderr
        assert not stage.nodes()["two"]["asked"]
        assert stage.one.daemon.chat("far", "hi").status_code == 503  # it is passed on, and hung up on
        wait_until(lambda: stage.nodes()["two"]["state"] == "away", "it has been silent for too long")
        assert stage.nodes()["two"]["models"] == []
        families = scraped(stage.one.daemon)
        assert value(families, f"{PREFIX}cluster_node_up", node="two") == 0
        assert value(families, failed, node="two") > before
        assert "nothing is known of it now" in stage.one.run("ps").stderr
    finally:
        stage.two.daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: stage.nodes()["two"]["asked"], "it is asked again")
    assert loaded(stage.nodes()["two"]) == [("far", "ready")]
