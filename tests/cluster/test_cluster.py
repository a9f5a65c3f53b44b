"""Two daemons as one: real daemons, real engines, a real NATS server, mutual TLS between them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.cluster.known import known_in
from supervisor.core.workers.token import decode, encode
from tests.cluster.stage import Node, cluster_of, events
from tests.support.daemon import running_daemon, scratch_home, wait_until
from tests.support.gated import Gate
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

ENGINE = {"ctx_size": 8192, "parallel": 2, "cache_ram": 0}
SAID = "one two three four five."


class Stage:
    """The nodes `one` and `two`. `near` is known to one, `far` and `endless` to two, `both` and `slow` to both."""

    def __init__(self, one: Node, two: Node) -> None:
        self.one = one
        self.two = two

    def clear(self) -> None:
        """Nothing is loaded, and both know it."""
        for node in (self.one, self.two):
            for model in node.daemon.http.get("/api/v1/models").json()["models"]:
                node.daemon.http.post("/api/v1/models/unload", json={"model": model["id"], "now": True})
        for node in (self.one, self.two):
            try:
                wait_until(lambda: self.quiet(node), "nothing runs anywhere")  # noqa: B023 - called at once
            except AssertionError:
                raise AssertionError([one.cluster() for one in (self.one, self.two)]) from None

    @staticmethod
    def quiet(node: Node) -> bool:
        """Whether a node hears all, and sees nothing loaded, and nothing claimed."""
        seen = node.cluster()["nodes"]
        return all(one["state"] == "ready" and not one["models"] and not one["claims"] for one in seen)


@pytest.fixture(scope="module")
def shown(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[Stage]:
    short = {"file": str(scripted_model(SAID, n_ctx=8192)), **ENGINE}
    named = {**short, "aliases": ["alias"]}
    long = {"ctx_size": 131072, "parallel": 1, "cache_ram": 0}  # more than all buffers on the way take
    endless = {"file": str(scripted_model("and on ", endless=True, n_ctx=131072)), **long}
    mine = {"near": named, "both": short, "slow": endless}
    theirs = {"far": named, "both": short, "slow": endless, "endless": endless}
    alone = {"undecided": "local"}
    with cluster_of(engine_binary, one={"models": mine, "cluster": alone}, two={"models": theirs}) as (one, two):
        yield Stage(one, two)


@pytest.fixture(autouse=True)
def cleared(shown: Stage) -> None:
    shown.clear()


def chat(node: Node, model: str, **more: Any) -> httpx.Response:
    """One chat request."""
    return node.daemon.chat(model, "hi", **more)


def content(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi", "max_tokens": 4},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30},
    "/completion": {"prompt": "hi", "n_predict": 4},
    "/api/chat": {"messages": [{"role": "user", "content": "hi"}]},
    "/api/generate": {"prompt": "hi"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", REQUESTS)
def test_any_node_answers_for_a_model_of_another(shown: Stage, path: str, stream: bool) -> None:
    body = {"model": "far", "stream": stream, **REQUESTS[path]}
    through = shown.one.daemon.http.post(path, json=body)
    at_home = shown.two.daemon.http.post(path, json=body)
    assert through.status_code == at_home.status_code == 200, through.text
    assert through.headers["content-type"] == at_home.headers["content-type"]
    assert told(through.text) == told(at_home.text)
    assert not shown.one.daemon.http.get("/api/v1/requests").json()["requests"]
    assert shown.two.has("far")


def test_paths_of_engines_are_answered_where_the_model_is(shown: Stage) -> None:
    one, two = shown.one.daemon.http, shown.two.daemon.http
    assert one.get("/props?model=far").json()["error"]["code"] == "model_not_loaded"  # and that does not load it
    assert not shown.two.has("far")
    body = {"messages": [{"role": "user", "content": "hi"}]}
    through = one.post("/upstream/far/v1/chat/completions", json=body)
    assert content(through) == SAID
    wait_until(lambda: bool(shown.one.sees(shown.two)["models"]), "it is known")
    for path in ("/props?model=far", "/slots?model=far", "/upstream/far/props", "/upstream/far/health"):
        there, here = one.get(path), two.get(path)
        assert there.status_code == here.status_code == 200, path
        assert there.json().keys() == here.json().keys() if path != "/slots?model=far" else there.json()
    assert (
        one.post("/tokenize", json={"model": "far", "content": "hi"}).json()
        == two.post("/tokenize", json={"model": "far", "content": "hi"}).json()
    )


def told(answer: str) -> list[str]:
    """What an answer says, without what differs from one to the next: ids and times."""
    lines = [line.removeprefix("data: ") for line in answer.splitlines() if line and not line.startswith("event:")]
    return [shape(json.loads(line)) if line.startswith("{") else line for line in lines]


def shape(value: Any) -> str:
    """A value's texts and names; numbers and ids count as alike."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{shape(value[name])}" for name in sorted(value) if name not in IDS) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(shape, value)) + "]"
    return value if isinstance(value, str) else "0"


IDS = {"id", "created", "created_at", "item_id", "response_id", "timings", "completed_at", "context", "usage"}


def test_the_list_has_the_models_of_all(shown: Stage) -> None:
    for node in (shown.one, shown.two):  # on a very busy machine a node may be silent for a while
        wait_until(lambda: {"near", "far", "both", "endless"} <= listed(node), "it lists the models of all")  # noqa: B023 - called at once
    assert content(chat(shown.one, "far")) == SAID
    wait_until(lambda: state_of(shown.one, "far") == "loaded", "it is shown as loaded")


def listed(node: Node) -> set[str]:
    return {card["id"] for card in node.daemon.http.get("/v1/models").json()["data"]}


def state_of(node: Node, model: str) -> str:
    cards = node.daemon.http.get("/v1/models").json()["data"]
    found: str = next(card for card in cards if card["id"] == model)["status"]["value"]
    return found


def test_a_model_that_nobody_knows_is_not_there(shown: Stage) -> None:
    answer = chat(shown.one, "nowhere")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_an_alias_means_what_it_means_on_the_node_that_is_asked(shown: Stage) -> None:
    for node, model in ((shown.one, "near"), (shown.two, "far")):
        answer = chat(node, "alias")
        assert content(answer) == SAID
        assert node.has(model)


def test_a_model_that_both_know_is_loaded_once(shown: Stage) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: chat((shown.one, shown.two)[number % 2], "both"), range(16)))
    assert {content(answer) for answer in answers} == {SAID}
    assert [node.has("both") for node in (shown.one, shown.two)].count(True) == 1
    seconds = [chat(node, "both") for node in (shown.one, shown.two)]
    assert {content(answer) for answer in seconds} == {SAID}
    assert [node.has("both") for node in (shown.one, shown.two)].count(True) == 1


def test_where_requests_wait_longer_than_a_load_takes_another_node_loads_the_model_too(shown: Stage) -> None:
    shown.one.did("load", "slow")
    wait_until(lambda: any(one["id"] == "slow" for one in shown.two.sees(shown.one)["models"]), "two knows")
    with ThreadPoolExecutor(1) as pool, stream(shown.two, "slow") as lines:
        next(lines)
        first = pool.submit(chat, shown.two, "slow", max_tokens=5)
        wait_until(lambda: is_behind(shown.two.sees(shown.one), "slow"), "it is told that requests wait for long")
        assert chat(shown.two, "slow", max_tokens=5).status_code == 200
        assert shown.two.has("slow")
        assert shown.one.daemon.busy_slots("slow") == 1
        assert not first.done()
        wait_until(
            lambda: all("slow" in shown.one.sees(node)["claims"] for node in (shown.one, shown.two)), "by claims"
        )
    assert first.result().status_code == 200


def is_behind(node: dict[str, Any], model: str) -> bool:
    """Whether a request would wait for longer than a load takes, and the two seconds that are the least."""
    return any(one["id"] == model and one["wait_s"] > max(2.0, one["load_s"]) for one in node["models"])


def test_an_engine_s_refusal_comes_as_it_is(shown: Stage) -> None:
    through, at_home = (chat(node, "far", tool_choice=7) for node in (shown.one, shown.two))
    assert through.status_code == at_home.status_code == 400
    assert through.json() == at_home.json()


def test_who_leaves_frees_the_slot_of_the_other_node(shown: Stage) -> None:
    with stream(shown.one, "endless") as lines:
        next(lines)
        assert shown.two.daemon.busy_slots("endless") == 1
    wait_until(lambda: shown.two.daemon.busy_slots("endless") == 0, "the slot is free")
    wait_until(lambda: shown.two.daemon.at_rest() and shown.one.daemon.at_rest(), "no request is left")


@contextlib.contextmanager
def stream(node: Node, model: str) -> Iterator[Iterator[str]]:
    """An endless answer."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with node.daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        yield (line for line in answer.iter_lines() if line.startswith("data: {") and '"content"' in line)


@pytest.mark.parametrize("where", ["one", "two"])
def test_a_request_is_cancelled_by_its_number_at_either_node(shown: Stage, where: str) -> None:
    asked = {"one": shown.one, "two": shown.two}[where].daemon.http
    body = {"model": "endless", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with shown.one.daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if '"content"' in line)
        (request,) = asked.get("/api/v1/requests").json()["requests"]
        assert request["model"] == "endless"
        asked.delete(f"/api/v1/requests/{request['id']}")
        last = events("\n".join(lines))[-2:]
    assert last[0]["error"]["code"] == "request_cancelled"
    assert last[1] == "[DONE]"
    wait_until(lambda: shown.two.daemon.busy_slots("endless") == 0, "the slot is free")


def test_a_node_that_drains_takes_nothing_new(shown: Stage) -> None:
    try:
        assert "draining" in shown.one.did("cluster", "drain", "two")
        assert content(chat(shown.two, "both")) == SAID
        assert shown.one.has("both")
        refused = chat(shown.one, "far")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "cluster_unavailable"
        assert int(refused.headers["retry-after"]) > 0
    finally:
        assert "ready" in shown.one.did("cluster", "drain", "two", "--undo")
    assert content(chat(shown.one, "far")) == SAID


def test_who_waits_for_a_load_on_a_node_that_drains_is_answered(
    engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, engine_binary)
    short = {"file": str(scripted_model(SAID, n_ctx=8192)), **ENGINE, "parallel": 1}
    models: dict[str, Any] = {"one": {"all": short}, "two": {"all": short, "far": short}}
    own: dict[str, Any] = {name: {"models": known, "server": {"keep_alive": 0}} for name, known in models.items()}
    with cluster_of(gate.engine, **own) as (one, two), ThreadPoolExecutor(5) as pool:
        two.daemon.http.post("/api/v1/models/load", json={"target": "all", "wait": False})
        wait_until(lambda: one.sees(two)["claims"] == ["all"], "one knows who loads it")
        asked = [pool.submit(chat, node, model) for node in (one, two) for model in ("all", "far")]
        wait_until(lambda: waiting(two, "all") == waiting(two, "far") == 2, "all wait for the loads")
        assert "draining" in one.did("cluster", "drain", "two")
        wait_until(lambda: not one.sees(two)["claims"], "others may load it")
        later = pool.submit(chat, two, "all")
        wait_until(lambda: waiting(one, "all") == 1, "who comes later waits elsewhere")
        gate.open()
        assert {content(answer.result()) for answer in (*asked, later)} == {SAID}
        for model in ("all", "far"):
            wait_until(lambda: two.daemon.model(model)["state"] == "unloaded", "it is unloaded after them")  # noqa: B023 - called at once
        assert one.has("all")


def waiting(node: Node, model: str) -> int:
    """How many requests wait for a model there."""
    return int(node.daemon.model(model)["waiting"])


def test_a_stranger_gets_nothing(shown: Stage) -> None:
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    for node in (shown.one, shown.two):
        with httpx.Client(base_url=f"https://127.0.0.1:{node.port}", verify=stranger, timeout=PATIENCE) as client:
            for method, path in (
                *(
                    ("POST", "/v1/chat/completions"),
                    ("GET", "/v1/models"),
                    ("GET", "/health"),
                    ("GET", "/api/v1/models"),
                ),
                *(
                    ("POST", "/api/v1/plan"),
                    ("POST", "/cluster/drain"),
                    ("GET", "/cluster/spent/x"),
                    ("GET", "/cluster/view"),
                    ("GET", "/metrics"),
                ),
            ):
                answer = client.request(method, path, json={"model": "far", "on": True})
                assert answer.status_code == 404, (method, path)
                assert "far" not in answer.text
            joined = client.post("/cluster/join", json={})
            assert joined.json()["error"]["code"] in {"invalid_request", "cluster_refused"}
    with socket.create_connection(("127.0.0.1", shown.one.store_port), PATIENCE) as plain:
        assert json.loads(plain.recv(1 << 16).partition(b" ")[2])["tls_required"]
        with stranger.wrap_socket(plain) as spoken, pytest.raises((ssl.SSLError, ConnectionError)):
            read_all(spoken, b'CONNECT {"verbose":true}\r\nSUB > 1\r\nPING\r\n')


def read_all(connection: ssl.SSLSocket, said: bytes) -> None:
    """Say something, and read to the end of what is answered, of which there must be nothing."""
    connection.sendall(said)
    assert connection.recv(100) == b""
    raise ConnectionError


def test_an_invitation_is_of_use_once(shown: Stage, engine_binary: Path, tmp_path: Path) -> None:
    token = shown.one.daemon.http.post("/api/v1/cluster/invitations", json={}).json()["token"]
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    first, second = (Node(name, tmp_path / name, engine_binary, {}) for name in ("x", "y"))
    words = ("cluster", "join", token, "--host", "127.0.0.1", "--name")
    first.did(*words, "x")
    try:
        again = second.run(*words, "y")
        assert again.returncode == 1
        assert "invitation was used" in again.stderr
        assert "[cluster_refused]" in again.stderr
        twice = first.run(*words, "x")
        assert "[cluster_joined]" in twice.stderr
    finally:
        shown.one.did("cluster", "remove", "x")  # who has joined is a member, also before its daemon runs


def test_another_s_invitation_is_noticed_before_anything_is_told(
    shown: Stage, engine_binary: Path, tmp_path: Path
) -> None:

    token = decode(shown.one.daemon.http.post("/api/v1/cluster/invitations", json={}).json()["token"])
    forged = encode(type(token)(token.host, token.port, "0" * 64, token.secret))
    (tmp_path / "z").mkdir()
    node = Node("z", tmp_path / "z", engine_binary, {})
    done = node.run("cluster", "join", forged, "--host", "127.0.0.1", "--name", "z")
    assert done.returncode == 1
    assert "is not the node that made the invitation" in done.stderr


def test_a_key_pays_for_what_other_nodes_count(shown: Stage) -> None:
    one = shown.one.daemon.http
    made = one.post("/api/v1/keys", json={"name": "root", "scopes": ["manage", "infer"]}).json()["key"]
    root = {"authorization": f"Bearer {made}"}
    try:
        asked = {"name": "bot", "scopes": ["infer"], "models": ["f*"], "token_budget": 1000}
        bot = {"authorization": f"Bearer {one.post('/api/v1/keys', json=asked, headers=root).json()['key']}"}
        body = {"model": "far", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        answer = one.post("/v1/chat/completions", json=body, headers=bot)
        assert answer.status_code == 200, answer.text
        wait_until(lambda: all(used(one, root)[name] > 0 for name in ("prompt_tokens", "completion_tokens")), "it paid")
        assert one.get("/api/v1/cluster", headers=bot).status_code == 403  # it names models that the key does not see
        hidden = one.post("/v1/chat/completions", json={**body, "model": "endless"}, headers=bot)
        assert hidden.status_code == 404
        assert {card["id"] for card in one.get("/v1/models", headers=bot).json()["data"]} == {"far"}
    finally:
        one.delete("/api/v1/keys/bot", headers=root)
        one.delete("/api/v1/keys/root", headers=root)


def used(client: httpx.Client, root: Mapping[str, str]) -> dict[str, int]:
    """What the key `bot` has used."""
    keys = client.get("/api/v1/keys", headers=root).json()["keys"]
    found: dict[str, int] = next(key for key in keys if key["name"] == "bot")["usage"]
    return found


def test_the_nats_server_may_end_and_hang(shown: Stage) -> None:
    assert content(chat(shown.one, "far")) == SAID
    shown.one.nats().send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: not shown.two.cluster()["connected"], "it is noticed that it hangs")
        wait_until(lambda: not shown.one.cluster()["connected"], "likewise")
        assert content(chat(shown.one, "far")) == SAID  # what is loaded goes on
        refused = chat(shown.two, "both")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "cluster_unavailable"
        assert int(refused.headers["retry-after"]) > 0
        assert content(chat(shown.one, "both")) == SAID  # it is to load its models then
        assert shown.one.has("both")
    finally:
        shown.one.nats().send_signal(signal.SIGCONT)
    wait_until(lambda: all(node.cluster()["connected"] for node in (shown.one, shown.two)), "all is well again")
    assert content(chat(shown.two, "both")) == SAID
    shown.one.nats().kill()
    wait_until(lambda: not shown.two.cluster()["connected"], "it is noticed that it has ended")
    wait_until(lambda: all(node.cluster()["connected"] for node in (shown.one, shown.two)), "all is well again")
    assert content(chat(shown.one, "far")) == SAID
    assert content(chat(shown.two, "near")) == SAID


def test_a_killed_node_s_streams_end_and_its_models_go_elsewhere(shown: Stage) -> None:
    shown.two.did("load", "both")
    wait_until(lambda: any(one["id"] == "both" for one in shown.one.sees(shown.two)["models"]), "one knows")
    body = {"model": "endless", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with shown.one.daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if '"content"' in line)
        shown.two.kill()
        last = events("\n".join(lines))[-2:]
    assert last[0]["error"]["code"] == "node_lost"
    assert last[1] == "[DONE]"
    try:
        assert content(chat(shown.one, "both")) == SAID
        assert shown.one.has("both")
        gone = chat(shown.one, "far")
        assert gone.status_code == 503
        wait_until(lambda: shown.one.sees(shown.two)["state"] == "away", "it is shown as away")
    finally:
        shown.two.start()
    wait_until(lambda: shown.one.sees(shown.two)["state"] == "ready", "it is back")
    assert content(chat(shown.one, "far")) == SAID


def test_a_request_without_a_byte_is_answered_elsewhere(shown: Stage) -> None:
    shown.two.did("load", "slow")
    wait_until(lambda: any(one["id"] == "slow" for one in shown.one.sees(shown.two)["models"]), "one knows")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(chat, shown.one, "slow", max_tokens=20_000)
        wait_until(lambda: shown.two.daemon.busy_slots("slow") > 0, "it is being answered")
        shown.two.kill()
        try:
            answer = asked.result()
        finally:
            shown.two.start()
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 20_000
    assert shown.one.has("slow")
    wait_until(lambda: shown.one.sees(shown.two)["state"] == "ready", "it is back")


def test_a_node_that_hangs_is_hung_up_on(shown: Stage) -> None:
    body = {"model": "endless", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with shown.one.daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if '"content"' in line)
        shown.two.daemon.process.send_signal(signal.SIGSTOP)
        try:
            last = events("\n".join(lines))[-2:]
            assert shown.one.sees(shown.two)["state"] == "away"
        finally:
            shown.two.daemon.process.send_signal(signal.SIGCONT)
    assert last[0]["error"]["code"] == "node_lost"
    assert last[1] == "[DONE]"
    wait_until(lambda: shown.one.sees(shown.two)["state"] == "ready", "it is there again")
    assert content(chat(shown.one, "far")) == SAID


def test_a_take_over_of_any_node_disturbs_nobody(shown: Stage) -> None:
    with stream(shown.one, "endless") as lines:
        next(lines)
        for node in (shown.one, shown.two):
            node.did("restart")
            next(lines)
            wait_until(lambda: node.cluster()["connected"], "it is connected again")  # noqa: B023 - called at once
        for _ in range(20):
            next(lines)
    assert content(chat(shown.one, "far")) == SAID
    assert content(chat(shown.two, "near")) == SAID


def test_a_node_leaves(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    short = {"file": str(scripted_model(SAID, n_ctx=8192)), **ENGINE}
    with cluster_of(engine_binary, one={}, two={"models": {"far": short}}) as (one, two):
        assert "has left" in two.did("cluster", "leave")
        wait_until(lambda: not one.sees(two), "it is gone")
        assert chat(one, "far").status_code == 404
        two.end()
        assert not (two.home / "cluster" / "cluster.json").exists()
        two.join(one)  # the name is free again
        two.start()
        wait_until(lambda: one.sees(two).get("state") == "ready", "it is back")
        assert content(chat(one, "far")) == SAID
        two.kill()
        assert "is removed" in one.did("cluster", "remove", "two")
        assert one.run("cluster", "remove", "two").returncode == 1
        assert chat(one, "far").status_code == 404


def test_who_joins_knows_the_first_node_though_its_server_waits_for_others(engine_binary: Path) -> None:
    with contextlib.ExitStack() as stack:
        one, two, three = (
            Node(name, stack.enter_context(scratch_home()), engine_binary, {}) for name in ("one", "two", "three")
        )
        one.init(two, three)
        one.start(alone=True)
        stack.callback(one.end)
        two.join(one)
        assert {node.name for node in known_in(two.home / "cluster").read()[0]} == {"one", "two"}
        assert not one.cluster()["connected"]


def test_in_no_cluster_nothing_of_it_is_there(engine_binary: Path) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary) as daemon:
        answer = daemon.http.get("/api/v1/cluster")
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "cluster_off"


@pytest.mark.full
def test_any_one_of_three_nodes_may_be_killed(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    short = {"file": str(scripted_model(SAID, n_ctx=8192)), **ENGINE}
    names = ("one", "two", "three")
    own: dict[str, Any] = {name: {"models": {"all": short, name: short}} for name in names}
    with cluster_of(engine_binary, servers=3, **own) as nodes:
        for node in nodes:
            assert node.cluster()["serves"]
            assert content(chat(node, "three")) == SAID
        for dead in nodes:
            left = [node for node in nodes if node is not dead]
            dead.kill()
            for node in left:
                wait_until(lambda: chat(node, "all").status_code == 200, "it is loaded somewhere")  # noqa: B023 - called at once
                wait_until(lambda: chat(node, left[0].name).status_code == 200, "likewise")  # noqa: B023 - called at once
            running = [node for node in left if node.has("all")]
            assert len(running) == 1
            dead.start()


@pytest.mark.full
def test_without_a_majority_of_the_servers_nothing_new_is_claimed(
    engine_binary: Path, scripted_model: ScriptedModel
) -> None:
    short = {"file": str(scripted_model(SAID, n_ctx=8192)), **ENGINE}
    models = {"models": {"first": short, "second": short}}
    own: dict[str, Any] = {"one": models, "two": {**models, "cluster": {"undecided": "local"}}, "three": {}}
    with cluster_of(engine_binary, servers=3, **own) as (one, two, three):
        assert content(chat(three, "first")) == SAID
        frozen = [one.nats(), three.nats()]
        for server in frozen:
            server.send_signal(signal.SIGSTOP)
        try:
            for node in (one, two, three):
                assert content(chat(node, "first")) == SAID  # what is loaded goes on
            refused = chat(one, "second")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "cluster_unavailable")
            assert int(refused.headers["retry-after"]) > 0
            assert content(chat(two, "second")) == SAID
            assert two.has("second")
        finally:
            for server in frozen:
                server.send_signal(signal.SIGCONT)
        for node in (one, two, three):
            wait_until(lambda: node.cluster()["connected"], "all is well again")  # noqa: B023 - called at once
        wait_until(lambda: "second" in one.sees(two)["claims"], "what was loaded meanwhile has a claim")
        assert content(chat(one, "second")) == SAID
        assert not one.has("second")


def test_a_daemon_alone_imports_nothing_of_it() -> None:
    program = "import sys, supervisor.daemon.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    found = set(done.stdout.split())
    assert "supervisor.daemon.build" in found
    assert not {one for one in found if one.partition(".")[0] == "nats"}
    assert not {one for one in found if one.startswith("supervisor.cluster.")} - {"supervisor.cluster.kept"}
