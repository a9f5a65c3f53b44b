"""One configuration for all nodes: real daemons, a real NATS server, real engines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.cluster.kept import membership
from supervisor.cluster.natsstore import NatsStore
from supervisor.core.cluster import messages as m
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import running_daemon, scratch_home, wait_until
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

SAID = "one two three four five."
PATH = "/api/v1/cluster/config"


@pytest.fixture(scope="module")
def nodes(
    engine_binary: Path, scripted_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Node]]:
    """Two nodes. The second one has a model of its own, and a llama-server without `--swa-full`."""
    older = tmp_path_factory.mktemp("older") / "llama-server"
    older.write_text(OLDER.format(engine_binary))
    older.chmod(0o755)
    own = {"mine": entry(scripted_model)}
    with cluster_of(engine_binary, one={}, two={"models": own, "engine": {"path": str(older)}}) as found:
        yield found


OLDER = """#!/bin/sh
case " $* " in
*" --help "*) '{0}' "$@" | grep -v -e --swa-full ;;
*) exec '{0}' "$@" ;;
esac
"""


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
    assert any(node.has("shared") for node in nodes)
    refused = one.run("tune", "shared", "--write")  # its file does not have it
    assert refused.returncode == 2
    assert "all nodes of the cluster share" in refused.stderr


def test_who_edits_an_older_version_is_told(nodes: list[Node], scripted_model: ScriptedModel) -> None:
    one, two = nodes
    number = done(one, text_of())
    with ThreadPoolExecutor(2) as pool:
        texts = [text_of(models={name: entry(scripted_model)}) for name in ("left", "right")]
        both = list(pool.map(lambda pair: put(pair[0], pair[1], number), zip(nodes, texts, strict=True)))
    assert sorted(answer.status_code for answer in both) == [200, 409]
    lost = next(answer for answer in both if answer.status_code == 409).json()["error"]
    assert lost["code"] == "cluster_config_changed"
    assert f"is at version {number + 1} by now" in lost["message"]
    in_force(one, number + 1, two)
    winner = ("left", "right")[both.index(next(answer for answer in both if answer.status_code == 200))]
    for node in nodes:
        wait_until(lambda: {"left", "right"} & listed(node) == {winner}, "one has won")  # noqa: B023 - called at once
    whatever = [put(node, text_of(defaults={"ttl": 9})) for node in nodes]  # who expects nothing loses to nobody
    assert [answer.json()["version"] for answer in whatever] == [number + 2, number + 3]


def test_one_with_a_fault_is_refused_and_changes_nothing(nodes: list[Node], scripted_model: ScriptedModel) -> None:
    one, two = nodes
    number = done(one, text_of(models={"kept": entry(scripted_model)}))
    in_force(one, number, two)
    for text, told in (
        ("models:\n  a: {source: o/r:q, ctx_sise: 8}", "cluster config:2:22: models.a.ctx_sise: unknown key"),
        ("engine: {path: /bin/sh}", "cluster config:1:1: engine: is each node's own"),
        ("models: {a: {source: command, command: [id]}}", "cluster config:1:22: models.a.source: runs a program"),
        ("models: {a: {file: '${env.HOME}/x.gguf'}}", "cluster config:1:20: models.a.file: each node has variables"),
        ("models: [", "cluster config:1:10: not valid YAML"),
    ):
        for path in (PATH, f"{PATH}/check"):
            answer = two.daemon.http.post(path, json={"text": text})
            assert answer.status_code == 422
            assert answer.json()["error"]["code"] == "config_invalid"
            assert answer.json()["error"]["message"].startswith(told)
    assert two.daemon.http.post(PATH, json={"text": "x" * 300_000}).status_code == 400
    assert two.daemon.http.get(PATH).json()["version"] == number
    assert "kept" in listed(one) & listed(two)


def test_an_option_that_an_engine_lacks(nodes: list[Node]) -> None:
    """The node with the older llama-server refuses what it cannot launch: where it is set, else when it is heard."""
    one, two = nodes
    good = done(one, text_of(models={"a": {"source": "demo", "ctx_size": 512}}))
    in_force(one, good, two)
    text = text_of(models={"a": {"source": "demo", "ctx_size": 512, "swa_full": True}})
    for path in (PATH, f"{PATH}/check"):
        answer = two.daemon.http.post(path, json={"text": text})
        assert answer.status_code == 422, answer.text
        assert "models.a: " in answer.json()["error"]["message"]
        assert "--swa-full" in answer.json()["error"]["message"]
    assert one.daemon.http.get(PATH).json()["version"] == good
    number = done(one, text)
    in_force(one, number)
    wait_until(lambda: "--swa-full" in (one.sees(two)["config_problem"] or ""), "two says that it cannot")
    assert one.sees(two)["config_version"] == good
    number = done(one, text_of())
    in_force(one, number, two)
    assert one.sees(two)["config_problem"] is None


def test_versions_are_kept_and_come_back(nodes: list[Node], scripted_model: ScriptedModel) -> None:
    one, two = nodes
    first = done(one, text_of(models={"old": entry(scripted_model)}))
    second = done(two, text_of(models={"new": entry(scripted_model)}))
    in_force(one, second, two)
    kept = one.daemon.http.get(f"{PATH}/history").json()["versions"]
    assert [(found["version"], found["node"]) for found in kept[:2]] == [(second, "two"), (first, "one")]
    assert kept[0]["at"] >= kept[1]["at"] > 1e9
    assert json.loads(two.daemon.http.get(PATH, params={"version": first}).json()["text"])["models"].keys() == {"old"}
    back = two.daemon.http.post(f"{PATH}/revert", json={"version": first, "expected": second}).json()
    assert back["version"] == second + 1
    in_force(one, second + 1, two)
    for node in nodes:
        wait_until(lambda: {"old", "new"} & listed(node) == {"old"}, "the old one is back")  # noqa: B023 - called at once
    late = one.daemon.http.post(f"{PATH}/revert", json={"version": second, "expected": second})
    assert late.json()["error"]["code"] == "cluster_config_changed"
    never = one.daemon.http.get(PATH, params={"version": 999})
    assert never.status_code == 404
    assert never.json()["error"]["code"] == "cluster_config_not_found"


def test_the_largest_text_gets_through(nodes: list[Node]) -> None:
    one, two = nodes
    number = done(one, "\n" * (1 << 18))  # in JSON it has twice as many bytes
    in_force(two, number, one)
    assert len(two.daemon.http.get(PATH, params={"version": number}).json()["text"]) == 1 << 18
    assert two.daemon.http.post(PATH, json={"text": "é" * (1 << 17) + "#"}).json()["error"]["code"] == "config_invalid"
    done(one, text_of())


def test_no_more_than_32_versions_are_kept(nodes: list[Node]) -> None:
    one, two = nodes
    numbers = [done(one, f"defaults: {{ttl: {number}}}") for number in range(1, 34)]
    kept = [found["version"] for found in two.daemon.http.get(f"{PATH}/history").json()["versions"]]
    assert kept == numbers[:0:-1]
    gone = two.daemon.http.post(f"{PATH}/revert", json={"version": numbers[0]})
    assert gone.json()["error"]["code"] == "cluster_config_not_found"


def test_an_engine_ends_only_if_its_launch_changes(nodes: list[Node], scripted_model: ScriptedModel) -> None:
    one, two = nodes
    in_force(two, done(one, text_of(models={"steady": entry(scripted_model)})))
    two.did("load", "steady")
    pid = two.daemon.model("steady")["pid"]
    number = done(one, text_of(models={"steady": entry(scripted_model, ttl=500)}, defaults={"priority": 3}))
    in_force(two, number)
    assert two.daemon.model("steady")["pid"] == pid
    shown = two.daemon.http.get("/api/v1/config", params={"model": "steady"}).json()["values"]
    assert {"key": "ttl", "value": 500.0, "origin": "cluster"}.items() <= next(
        found for found in shown if found["key"] == "ttl"
    ).items()
    number = done(one, text_of(models={"steady": entry(scripted_model, parallel=1)}))
    in_force(two, number)
    wait_until(lambda: two.daemon.model("steady")["pid"] not in {pid, None}, "it was started anew")
    done(one, text_of())
    wait_until(lambda: "steady" not in listed(two), "it is gone")


def test_a_node_s_own_model_counts_there(nodes: list[Node], scripted_model: ScriptedModel) -> None:
    one, two = nodes
    number = done(one, text_of(models={"mine": entry(scripted_model, ttl=77)}, defaults={"max_seconds": 99}))
    in_force(two, number, one)
    ttl = [values(node, "mine").get("ttl") for node in nodes]
    assert ttl == [77, None]
    assert [values(node, "mine").get("max_seconds") for node in nodes] == [99, 99]
    done(one, text_of())


def values(node: Node, model: str) -> dict[str, Any]:
    """What is set for a model on a node."""
    found = node.daemon.http.get("/api/v1/config", params={"model": model}).json()["values"]
    return {one["key"]: one["value"] for one in found}


def test_a_model_runs_where_its_file_is(nodes: list[Node], scripted_model: ScriptedModel, tmp_path: Path) -> None:
    """A node without the file takes the version over, lists the model, and has no plan for it."""
    one, two = nodes
    nowhere = entry(scripted_model) | {"file": str(tmp_path / "nowhere.gguf")}
    number = done(one, text_of(models={"elsewhere": nowhere}))
    in_force(two, number, one)
    lost = two.daemon.chat("elsewhere", "hi")
    assert lost.status_code in {422, 507}, lost.text
    assert "nowhere.gguf does not exist" in lost.json()["error"]["message"]
    assert "elsewhere" in listed(one) & listed(two)
    (tmp_path / "nowhere.gguf").symlink_to(scripted_model(SAID, n_ctx=8192))
    assert content(two.daemon.chat("elsewhere", "hi")) == SAID
    moved = entry(scripted_model) | {"file": str(tmp_path / "moved.gguf")}
    number = done(one, text_of(models={"elsewhere": moved}))  # though none has it, and one has it loaded from the other
    in_force(one, number, two)
    done(one, text_of())


def test_who_cannot_take_it_over_keeps_what_it_has_and_says_so(
    nodes: list[Node], scripted_model: ScriptedModel
) -> None:
    one, two = nodes
    good = done(one, text_of(models={"good": entry(scripted_model)}))
    in_force(one, good, two)
    path = str(scripted_model(SAID, n_ctx=8192))
    two.daemon.http.post("/api/v1/models/load", json={"target": path, "id": "given"}).raise_for_status()
    bad = done(one, text_of(models={"good": entry(scripted_model), "taken": entry(scripted_model, aliases=["given"])}))
    wait_until(lambda: one.sees(two)["config_problem"] is not None, "it says so")
    assert one.sees(two)["config_version"] == good
    assert f"version {bad}: 'given' already names the model" in one.sees(two)["config_problem"]
    assert one.sees(one)["config_version"] == bad
    assert "cluster_config_refused" in (two.home / "daemon-output.log").read_text()
    told = one.run("cluster", "nodes")
    assert f"{good} (!)" in told.stdout
    assert "two has not taken the cluster's configuration over" in told.stderr
    assert "good" in listed(two)
    two.daemon.http.post("/api/v1/models/unload", json={"model": "given", "now": True})
    two.daemon.http.post("/api/v1/models/forget", json={"model": "given"}).raise_for_status()
    number = done(one, text_of())
    in_force(one, number, two)
    assert one.sees(two)["config_problem"] is None


def test_what_a_hostile_node_writes_runs_nothing(nodes: list[Node], tmp_path: Path) -> None:
    """It has a certificate of the cluster, and writes past all checks of its own program."""
    one, two = nodes
    good = done(one, text_of(defaults={"ttl": 60}))
    in_force(one, good, two)
    made = tmp_path / "made"
    command = {"source": "command", "command": ["touch", str(made)], "preload": True}
    for number, text in enumerate(
        (text_of(models={"evil": command}), "x: [", '{"server": {"api_keys": []}}'), good + 1
    ):
        write(one, m.bytes_of(m.Config(number, "one", 1.0, text)))
        for node in nodes:
            wait_until(lambda: f"version {number}:" in (node.sees(node)["config_problem"] or ""), "it is refused")  # noqa: B023 - called at once
            assert node.sees(node)["config_version"] == good
    write(one, b"{}")
    for node in nodes:
        wait_until(lambda: "cannot be read" in (node.sees(node)["config_problem"] or ""), "it is refused")  # noqa: B023 - called at once
    assert not made.exists()
    assert "evil" not in listed(one) | listed(two)
    expecting = put(two, text_of(), good + 3).json()["error"]
    assert expecting["code"] == "cluster_config_changed"
    assert "cannot be read here" in expecting["message"]
    number = done(two, text_of())  # whatever is there
    assert number == good + 4
    in_force(one, number, two)


def write(node: Node, value: bytes) -> None:
    """Write a version into the store as a node, past everything."""

    async def written() -> None:
        kept = membership(node.home / "cluster")
        assert kept is not None
        store = NatsStore(kept.servers, kept.dialling(), kept.own, lambda _connected: None)
        await store.connect()
        await store.ready()
        await store.put("config", "shared", value)
        await store.close()

    asyncio.run(written())


def test_the_command_line(nodes: list[Node], tmp_path: Path) -> None:
    one, two = nodes
    done(one, "defaults:\n  ttl: 5m  # a comment\n")
    file = tmp_path / "cluster.yaml"
    file.write_text(two.did("cluster", "config", "show"))
    first, *rest = file.read_text().splitlines()
    version = int(re.fullmatch(r"# Version (\d+) of the cluster's configuration, set at one, .*\.", first)[1])  # type: ignore[index]  # it matches
    assert rest == ["defaults:", "  ttl: 5m  # a comment"]
    file.write_text(file.read_text().replace("5m", "6m"))
    assert f"version {version + 1} is set" in two.did("cluster", "config", "set", str(file))
    stale = one.run("cluster", "config", "set", str(file))
    assert stale.returncode == 1
    assert "[cluster_config_changed]" in stale.stderr
    again = one.did("cluster", "config", "show").splitlines()
    assert again[0].startswith(f"# Version {version + 1} of")
    assert again[1:] == ["defaults:", "  ttl: 6m  # a comment"]
    plain = tmp_path / "plain.yaml"
    plain.write_text("defaults: {ttl: 7}\n")
    unsaid = one.run("cluster", "config", "set", str(plain))
    assert unsaid.returncode == 2
    assert f"--expect {version + 1}" in unsaid.stderr
    one.did("cluster", "config", "set", str(plain), "--expect", str(version + 1))
    one.did("cluster", "config", "set", str(plain), "--force")
    assert f"version {version + 4} is set" in two.did("cluster", "config", "revert", str(version))
    assert "5m" in one.did("cluster", "config", "show", "--version", str(version + 4))
    listing = two.did("cluster", "config", "history").splitlines()
    assert [line.split()[0] for line in listing[:3]] == ["VERSION", str(version + 4), str(version + 3)]
    plain.write_text("models:\n  a: {source: o/r:q, ctx_sise: 8}\n")
    for word in ("set", "check"):
        wrong = one.run("cluster", "config", word, str(plain))
        assert wrong.returncode != 0
        assert f"{plain}:2:22: models.a.ctx_sise: unknown key" in wrong.stderr
    found = json.loads(one.run("cluster", "config", "check", str(plain), "--json").stdout)
    assert [(fault["line"], fault["column"]) for fault in found["faults"]] == [(2, 22)]
    plain.write_text("models: {a: {source: demo}}")
    assert one.did("cluster", "config", "check", str(plain)).endswith("ok; models: a\n")
    assert "configuration: " in one.did("cluster", "status")


def test_keys_that_may_not_manage_see_no_text(nodes: list[Node]) -> None:
    one, _ = nodes
    http = one.daemon.http
    made = http.post("/api/v1/keys", json={"name": "root", "scopes": ["manage"]}).json()["key"]
    root = {"authorization": f"Bearer {made}"}
    try:
        asked = {"name": "looks", "scopes": ["read", "infer"]}
        looks = {"authorization": f"Bearer {http.post('/api/v1/keys', json=asked, headers=root).json()['key']}"}
        assert http.get(f"{PATH}/history", headers=looks).status_code == 200
        assert http.get(PATH, headers=looks).status_code == 403
        for path, body in (("", {"text": ""}), ("/check", {"text": ""}), ("/revert", {"version": 1})):
            assert http.post(PATH + path, json=body, headers=looks).status_code == 403
        assert http.get(PATH, headers=root).status_code == 200
    finally:
        http.delete("/api/v1/keys/looks", headers=root)
        http.delete("/api/v1/keys/root", headers=root)


def test_a_later_start_and_one_without_the_store(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    with cluster_of(engine_binary, one={}, two={}) as (one, two):
        two.end()
        number = done(one, text_of(models={"shared": entry(scripted_model)}))
        two.start()
        in_force(one, number, two)
        assert content(two.daemon.chat("shared", "hi")) == SAID
        two.end()
        one.kill()  # and its NATS server with it
        two.start(alone=True)
        assert "shared" in listed(two)
        assert two.cluster()["config_version"] == number
        assert f"configuration: {number}" in two.did("cluster", "status")
        wait_until(lambda: two.cluster()["unable"] is not None, "it knows that there is no store")
        assert two.daemon.http.get(PATH).json()["version"] == number
        assert two.daemon.http.get("/api/v1/config", params={"model": "shared"}).status_code == 200
        lost = put(two, text_of())
        assert lost.status_code == 503
        assert lost.json()["error"]["code"] == "cluster_unavailable"
        assert f"cluster version {number}:" in two.did("config", "show")
        assert f"version {number} of the cluster's" in two.run("doctor").stdout
        two.did("restart")  # the next image has it, too
        assert "shared" in listed(two)
        two.end()
        (two.home / "cluster" / "config.json").write_text("nonsense")
        two.start(alone=True)
        assert "shared" not in listed(two)
        one.start()
        wait_until(lambda: two.cluster()["config_version"] == number, "it is told again")
        assert "shared" in listed(two)
        two.did("cluster", "leave")
        assert not (two.home / "cluster" / "config.json").exists()


def test_in_no_cluster_there_is_none(engine_binary: Path) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary) as daemon:
        answers = [daemon.http.get(PATH), daemon.http.post(PATH, json={"text": ""}), daemon.http.get(f"{PATH}/history")]
        assert {answer.json()["error"]["code"] for answer in answers} == {"cluster_off"}
