"""Model files from another node: two real daemons, a real NATS server, and a hub that counts what it sends."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from supervisor.cluster.kept import Membership, membership
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import scratch_home, wait_until
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
        models = {name: {"source": f"both/{name}:Q4_0", "ctx_size": 4096} for name in ("ours", "theirs")}
        own = {"hub": {"endpoint": hub.url}, "models": models}
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


def test_a_node_that_dies_between_two_files_leaves_the_rest_to_the_hub(stage: Stage) -> None:
    parts = {f"s-Q8_0-0000{number}-of-00003.gguf": stage.model(10 + number) for number in (1, 2, 3)}
    stage.hub.add("a/b", parts)
    pull(stage.one, "a/b:Q8_0")
    first, second, third = (sha(data) for data in parts.values())
    sent = {one: stage.hub.sent_bytes(one) for one in (first, second, third)}
    with ThreadPoolExecutor(1) as pool, held(stage.two, second):
        asked = pool.submit(pull, stage.two, "a/b:Q8_0")
        wait_until(lambda: (blobs(stage.two) / first).exists(), "the first file is there, and the second one waits")
        stage.one.kill()
    try:
        asked.result()
    finally:
        stage.one.start()
    wait_until(lambda: stage.two.sees(stage.one)["state"] == "ready", "it is back")
    assert [(blobs(stage.two) / sha(data)).read_bytes() for data in parts.values()] == list(parts.values())
    grown = [stage.hub.sent_bytes(one) - before for one, before in sent.items()]
    assert grown == [0, len(parts["s-Q8_0-00002-of-00003.gguf"]), len(parts["s-Q8_0-00003-of-00003.gguf"])]


def test_bytes_that_a_node_has_wrong_are_refused_and_come_from_the_hub(stage: Stage) -> None:
    model = stage.model(2)
    stage.hub.add("a/b", {"w-Q5_0.gguf": model})
    pull(stage.one, "a/b:Q5_0")
    altered = blobs(stage.one) / sha(model)
    altered.write_bytes(model[:-1] + b"!")
    before = stage.hub.sent_bytes(sha(model))
    pull(stage.two, "a/b:Q5_0")
    assert (blobs(stage.two) / sha(model)).read_bytes() == model
    assert stage.hub.sent_bytes(sha(model)) - before == len(model)
    log = (stage.two.home / "daemon-output.log").read_text()
    assert "file_not_borrowed" in log
    assert f"not {sha(model)}" in log


def test_it_is_told_whose_bytes_come(stage: Stage) -> None:
    parts = {f"t-Q6_K-0000{number}-of-00002.gguf": stage.model(20 + number) for number in (1, 2)}
    stage.hub.add("a/b", parts)
    pull(stage.one, "a/b:Q6_K")
    second = parts["t-Q6_K-00002-of-00002.gguf"]
    asked = {"model": "a/b:Q6_K"}
    with (
        held(stage.two, sha(second)) as lock,
        stage.two.daemon.http.stream(
            "POST", "/api/v1/models", json=asked, headers={"accept": "text/event-stream"}
        ) as told,
    ):
        lines = (json.loads(line.removeprefix("data: ")) for line in told.iter_lines() if line.startswith("data: {"))
        shown = next(line["download"] for line in lines if line.get("download", {}).get("from"))
        assert shown["from"] == "node one"
        lock.release()
        assert list(lines)[-1]["state"] == "done"


@contextmanager
def held(node: Node, content: str) -> Iterator[FileLock]:
    """The lock of a content of a/b in a node's cache, at which all programs with that cache wait."""
    place = blobs(node).parents[1] / ".locks/models--a--b" / f"{content}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place) as lock:
        yield lock


def test_a_download_from_a_node_is_called_off_at_once(stage: Stage) -> None:
    model = stage.model(4)
    stage.hub.add("a/b", {"c-Q3_K.gguf": model})
    pull(stage.one, "a/b:Q3_K")
    with ThreadPoolExecutor(1) as pool, held(stage.two, sha(model)):
        asked = pool.submit(stage.two.daemon.http.post, "/api/v1/models", json={"model": "a/b:Q3_K"})
        wait_until(lambda: bool(borrowers(stage.two)), "it has begun")
        stage.two.daemon.http.delete("/api/v1/models", params={"model": "a/b:Q3_K"})
        answer = asked.result()
    assert answer.json()["error"]["code"] == "load_cancelled"
    assert not borrowers(stage.two)


def borrowers(node: Node) -> list[psutil.Process]:
    """The processes of a node that get files from others."""
    found = []
    for child in psutil.Process(node.daemon.pid).children(recursive=True):
        try:
            if any("cluster.borrower" in word for word in child.cmdline()):
                found.append(child)
        except psutil.Error:  # it may end just now
            continue
    return found


def test_the_process_that_asks_nodes_has_no_token_and_the_other_no_key(stage: Stage) -> None:
    model = stage.model(5)
    stage.hub.add("a/b", {"k-Q2_K.gguf": model})
    pull(stage.one, "a/b:Q2_K")
    with ThreadPoolExecutor(1) as pool, held(stage.two, sha(model)):
        asked = pool.submit(pull, stage.two, "a/b:Q2_K")
        wait_until(lambda: bool(borrowers(stage.two)), "it has begun")
        env = borrowers(stage.two)[0].environ()
    asked.result()
    assert not {name for name in env if name.startswith("HF_") or "TOKEN" in name}


def test_of_equal_nodes_the_one_with_the_files_loads(stage: Stage) -> None:
    nodes = (stage.one, stage.two)
    for number, (model, node) in enumerate(zip(("ours", "theirs"), nodes, strict=True)):
        stage.hub.add(f"both/{model}", {"m-Q4_0.gguf": stage.model(30 + number)})
        pull(node, f"both/{model}:Q4_0")
    for model, node in zip(("ours", "theirs"), nodes, strict=True):
        for asked in nodes:
            found = offers(asked, model)
            assert {one["node"]: one["on_disk"] for one in found["offers"]} == {one.name: one is node for one in nodes}
            assert found["node"] == node.name
    assert stage.one.daemon.chat("theirs", "hi").json()["choices"][0]["message"]["content"] == SAID


def offers(node: Node, model: str) -> dict[str, Any]:
    """Where a model would go, and what each node says of it; once both have said something."""
    found: dict[str, Any] = {}

    def told() -> bool:
        found.update(node.daemon.http.post("/api/v1/cluster/plan", json={"target": model}).json())
        return [one["fits"] for one in found["offers"]] == [True, True]

    wait_until(told, "both nodes have said what they have")  # on a busy machine a plan may come too late
    return found


# what else may be asked of the port


class Asking:
    """The port for nodes of one, asked with the certificate of two; or with none."""

    def __init__(self, stage: Stage, *, stranger: bool = False) -> None:
        self._port = stage.one.port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        if not stranger:
            kept = membership(stage.two.home / "cluster")
            assert isinstance(kept, Membership)
            self._context = kept.dialling()
        self.open: list[http.client.HTTPSConnection] = []

    def begin(self, target: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        """An answer of which nothing but the head was read."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=PATIENCE)
        self.open.append(connection)
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        return connection.getresponse()

    def __call__(self, target: str, method: str = "GET", **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
        """Status, body and headers of an answer."""
        answer = self.begin(target, method, **headers)
        found = answer.status, answer.read(), answer.headers
        self.close()
        return found

    def close(self) -> None:
        while self.open:
            self.open.pop().close()


@pytest.fixture
def ask(stage: Stage) -> Iterator[Asking]:
    found = Asking(stage)
    yield found
    found.close()


@pytest.fixture
def lent(stage: Stage) -> Iterator[str]:
    """A content of one's cache that is larger than all buffers on the way, which is made at once; its name."""
    name = "5" * 64
    place = blobs(stage.one) / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as stream:
        stream.write(b"begin")
        stream.truncate(128 << 20)
    yield f"/cluster/blobs/{name}"
    place.unlink()


def test_ranges_are_answered_as_http_has_them(ask: Asking, lent: str) -> None:
    size = 128 << 20
    status, body, headers = ask(lent, Range="bytes=0-4")
    assert (status, body, headers["content-range"]) == (206, b"begin", f"bytes 0-4/{size}")
    assert headers["etag"] == f'"{"5" * 64}"'
    assert headers["accept-ranges"] == "bytes"
    status, body, headers = ask(lent, Range=f"bytes={size - 2}-")
    assert (status, body, headers["content-range"]) == (206, b"\0\0", f"bytes {size - 2}-{size - 1}/{size}")
    status, body, headers = ask(lent, Range=f"bytes={size}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{size}")
    assert json.loads(body)["error"]["code"] == "range_not_satisfiable"
    status, body, headers = ask(lent, "HEAD")
    assert (status, body, headers["content-length"]) == (200, b"", str(size))
    status, body, headers = ask(lent, "HEAD", Range="bytes=1-3")
    assert (status, body, headers["content-length"]) == (206, b"", "3")
    status, _, headers = ask(lent, "HEAD", Range="bytes=1-3", If_Range='"another"')
    assert (status, headers["content-length"]) == (200, str(size))


def both(ask: Asking, lent: str) -> list[http.client.HTTPResponse]:
    """Two answers that nobody reads: as many as a node gets at once. Those of earlier tests may be about to end."""
    answers: list[http.client.HTTPResponse] = []

    def begun() -> bool:
        answers.extend(one for one in [ask.begin(lent)] if one.status == 200)
        return len(answers) == 2

    wait_until(begun, "two answers have begun")
    return answers


def test_a_node_sends_few_files_at_once_and_who_leaves_makes_room(stage: Stage, ask: Asking, lent: str) -> None:
    first, second = both(ask, lent)
    status, body, headers = Asking(stage)(lent)
    assert (status, json.loads(body)["error"]["code"]) == (503, "lending_full")
    assert int(headers["retry-after"]) >= 1
    assert Asking(stage)(lent, "HEAD")[0] == 200
    assert first.read(5) == second.read(5) == b"begin"
    ask.close()
    wait_until(lambda: Asking(stage)(lent, Range="bytes=0-4")[0] == 206, "both places are free again")


def test_requests_are_answered_beside_files_that_nobody_takes(stage: Stage, ask: Asking, lent: str) -> None:
    assert len(both(ask, lent)) == 2
    assert stage.one.daemon.http.get("/health").status_code == 200
    assert stage.two.sees(stage.one)["state"] == "ready"


def test_a_file_goes_on_from_the_next_image_of_a_node_that_is_restarted(stage: Stage, ask: Asking, lent: str) -> None:
    answer, _ = both(ask, lent)
    assert answer.read(5) == b"begin"
    stage.one.did("restart")
    with pytest.raises((OSError, http.client.IncompleteRead)):
        answer.read()
    wait_until(lambda: stage.one.cluster()["connected"], "it is connected again")
    assert Asking(stage)(lent, Range="bytes=3-4")[:2] == (206, b"in")


NAMES = [
    "/cluster/blobs/",
    "/cluster/blobs/" + "5" * 63,
    "/cluster/blobs/" + "5" * 65,
    "/cluster/blobs/" + "A" * 64,
    "/cluster/blobs/" + "6" * 64,
    "/cluster/blobs/" + "7" * 64,
    "/cluster/blobs/" + "8" * 64,
    "/cluster/blobs/" + "9" * 64,
    "/cluster/blobs/" + "b" * 64,
    "/cluster/blobs/" + "5" * 64 + ".partial.incomplete",
    "/cluster/blobs/../blobs/" + "5" * 64,
    "/cluster/blobs/%2e%2e/%2e%2e/cluster/node.key",
    "/cluster/blobs/..%2f..%2fendpoint.json",
    "/cluster/blobs//etc/passwd",
    "/cluster/blobs/" + "5" * 64 + "/",
    "/cluster/blobs/" + "5" * 64 + "%00",
    "/cluster/repositories/",
    "/cluster/repositories/a",
    "/cluster/repositories/nobody/nothing",
    "/cluster/repositories/..%2f..",
    "/cluster/repositories/a/b?revision=../../../../../../etc/hostname",
    "/cluster/repositories/a/b?revision=/etc/hostname",
    "/cluster/repositories/a/b?revision=%00",
]


@pytest.mark.parametrize("target", NAMES)
def test_what_is_no_name_of_a_content_is_not_there(stage: Stage, ask: Asking, lent: str, target: str) -> None:
    """Links count for nothing, in place of a content, its folder or its repository; nor do folders, nor data sets."""
    cache = blobs(stage.one).parents[1]
    elsewhere = stage.one.home / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / ("8" * 64)).write_text("secret")
    made = [blobs(stage.one) / ("6" * 64), cache / "models--x--linked", cache / "models--x--inner/blobs"]
    made[2].parent.mkdir(exist_ok=True)
    (blobs(stage.one) / ("7" * 64)).mkdir(exist_ok=True)
    (cache / ("9" * 64)).write_text("beside the repositories")
    (cache / "datasets--a--b/blobs").mkdir(parents=True, exist_ok=True)
    (cache / "datasets--a--b/blobs" / ("b" * 64)).write_text("no model")
    whole = stage.one.home / "whole"
    (whole / "blobs").mkdir(parents=True, exist_ok=True)
    (whole / "blobs" / ("8" * 64)).write_text("secret")
    for place, leads in zip(made, (elsewhere / ("8" * 64), whole, elsewhere), strict=True):
        place.unlink(missing_ok=True)
        place.symlink_to(leads)
    status, body, _ = ask(target)
    assert (status, json.loads(body)["error"]["code"]) in {(404, "file_not_here"), (404, "route_not_found")}
    assert b"secret" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_files_can_be_read_and_nothing_else(ask: Asking, lent: str, method: str) -> None:
    assert ask(lent, method, content_length="0")[0] == 404


@pytest.mark.parametrize("target", ["/cluster/blobs/" + "5" * 64, "/cluster/repositories/a/b"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_stranger_gets_nothing(stage: Stage, lent: str, target: str, method: str) -> None:
    assert Asking(stage, stranger=True)(target, method)[0] == 404


def test_what_a_node_has_of_a_repository(stage: Stage, ask: Asking) -> None:
    model = stage.model(7)
    stage.hub.add("Told/Of", {"m-Q4_0.gguf": model, "README.md": b"readme"})
    pull(stage.one, "told/of:Q4_0")
    status, body, _ = ask("/cluster/repositories/told/of")
    assert status == 200
    found = json.loads(body)
    assert (found["id"], found["sha"]) == ("Told/Of", stage.hub.repositories["told/of"].refs["main"])
    large = {"sha256": sha(model), "size": len(model)}
    assert found["siblings"] == [{"rfilename": "m-Q4_0.gguf", "size": len(model), "blobId": sha(model), "lfs": large}]
    assert ask(f"/cluster/repositories/told/of?revision={found['sha']}")[0] == 200
    assert ask("/cluster/repositories/told/of?revision=other")[0] == 404


@contextmanager
def joined(stage: Stage, engine: Path, settings: dict[str, Any]) -> Iterator[Node]:
    """A third node, for a while."""
    with scratch_home() as home:
        node = Node("three", home, engine, settings)
        node.join(stage.one)
        try:
            node.start()
            wait_until(lambda: node.sees(stage.one).get("state") == "ready", "it sees the first")
            yield node
        finally:
            node.end()
            stage.one.run("cluster", "remove", "three")


def test_a_node_that_may_not_use_the_network_has_what_the_others_have(stage: Stage, engine_binary: Path) -> None:
    model = stage.model(8)
    stage.hub.add("Off/Line", {"m-Q4_0.gguf": model})
    pull(stage.one, "off/line:Q4_0")
    before = len(stage.hub.seen)
    with joined(stage, engine_binary, {"hub": {"endpoint": stage.hub.url, "offline": True}}) as three:
        planned = three.daemon.http.post("/api/v1/plan", json={"target": "off/line:Q4_0"}).json()
        assert (planned["fits"], planned["on_disk"]) == (True, False)
        assert "by its word" in planned["note"]
        shown = three.daemon.load("off/line:Q4_0")
        assert three.daemon.chat(shown["id"], "hi").json()["choices"][0]["message"]["content"] == SAID
        missing = three.daemon.http.post("/api/v1/models", json={"model": "off/other:Q4_0"})
        assert missing.json()["error"]["code"] == "hub_unreachable"
    assert len(stage.hub.seen) == before
