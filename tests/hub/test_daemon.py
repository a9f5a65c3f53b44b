"""The daemon and the hub: progress, cancellation, split models, projectors, updates, removal."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import httpx
import numpy as np
import psutil
import pytest

from tests.hub.conftest import SAID
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.gguf_split import GgufSplit
from tests.support.hub import Fault, LocalHub
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine


@pytest.fixture
def daemon(engine_binary: Path, hub: LocalHub) -> Iterator[RunningDaemon]:
    with scratch_home() as home:
        models = {"models": {"chosen": {"source": "a/b:Q4_0", "ctx_size": 4096}}}
        env = hub.environment(home / "hf")
        with running_daemon(home, engine_binary, models, env=env) as running:
            yield running


def workers(daemon: RunningDaemon) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may end just now
            if any("hub.worker" in word for word in child.cmdline()):
                found.append(child)
    return found


def is_on_disk(daemon: RunningDaemon) -> bool:
    found = daemon.http.get("/api/v1/disk").json()["models"]
    return bool(found) and not any(one["problem"] for one in found)


def padded(path: Path, size: int) -> bytes:
    """The model with so many bytes more at its end, which no reader minds."""
    return path.read_bytes() + bytes(size)


def test_a_request_for_a_configured_model_fetches_it(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    answer = daemon.chat("chosen", "Hello?")
    assert answer.json()["choices"][0]["message"]["content"] == SAID
    shown = daemon.model("chosen")
    assert (shown["hub"], shown["source"], shown["state"]) == ("a/b:Q4_0", "hub", "ready")
    assert shown["path"].endswith("m-Q4_0.gguf")
    assert daemon.http.get("/v1/models/chosen").json()["id"] == "chosen"


def test_a_shard_that_was_cut_off_is_no_model_until_it_is_fetched_again(
    daemon: RunningDaemon, hub: LocalHub, talker: Path, gguf_split: GgufSplit, tmp_path: Path
) -> None:
    parts = gguf_split(talker, tmp_path, "talker-Q8_0", 5)
    hub.add("a/split", {f"Q8_0/{part.name}": part for part in parts})
    planned = daemon.http.post("/api/v1/plan", json={"target": "a/split:Q8_0"}).json()
    assert planned["fits"]
    shown = daemon.load("a/split:q8_0")
    assert shown["id"] == "a/split:Q8_0"
    assert shown["size_bytes"] == sum(part.stat().st_size for part in parts)
    daemon.http.post("/api/v1/models/unload", json={"model": shown["id"]})
    last = Path(shown["path"]).with_name(parts[-1].name).resolve()
    os.truncate(last, parts[-1].stat().st_size - 100)
    refused = daemon.http.post("/api/v1/models/load", json={"target": "a/split:Q8_0"}).json()["error"]
    assert refused["code"] == "gguf_invalid"
    assert f"{parts[-1].name} is not a usable GGUF" in refused["message"], "our words: no engine was started"
    [found] = daemon.http.post("/api/v1/models/verify", json={}).json()["models"]
    assert "bytes, not" in found["problems"][0]
    assert len(daemon.http.delete("/api/v1/models", params={"model": "a/split"}).json()["files"]) == 3
    daemon.load("a/split:Q8_0")
    assert daemon.chat("a/split:Q8_0", "Hello?").json()["choices"][0]["message"]["content"] == SAID


def test_shards_on_disk_are_loaded_by_any_of_them(
    daemon: RunningDaemon, talker: Path, gguf_split: GgufSplit, tmp_path: Path
) -> None:
    parts = gguf_split(talker, tmp_path, "local-Q8_0", 5)
    shown = daemon.load(str(parts[1]))
    assert (shown["path"], shown["state"]) == (str(parts[0]), "ready")
    assert daemon.chat(shown["id"], "Hello?").json()["choices"][0]["message"]["content"] == SAID
    daemon.http.post("/api/v1/models/unload", json={"model": shown["id"]})
    os.truncate(parts[2], parts[2].stat().st_size - 100)
    refused = daemon.http.post("/api/v1/models/load", json={"target": str(parts[0])}).json()["error"]
    assert refused["code"] == "gguf_invalid"
    assert f"{parts[2].name} is not a usable GGUF" in refused["message"]
    parts[2].unlink()
    refused = daemon.http.post("/api/v1/models/load", json={"target": str(parts[0])}).json()["error"]
    assert refused["code"] == "shard_missing"
    assert parts[2].name in refused["message"]


@pytest.mark.parametrize("how", ["unload", "delete", "leave"])
def test_a_load_is_called_off_within_a_second(how: str, daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 4 << 20)})
    hub.spoil(Fault("/storage/", method="GET", rate=1e5))
    other: list[httpx.Response] = []

    body = {"model": "chosen", "messages": [{"role": "user", "content": "Hello?"}]}
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    host, port = daemon.url.removeprefix("http://").split(":")
    leaving = socket.create_connection((host, int(port)), timeout=PATIENCE)

    def chat() -> None:
        other.append(daemon.http.post("/v1/chat/completions", json=body))

    thread = threading.Thread(target=chat)
    if how == "leave":
        asked = json.dumps(body)
        leaving.sendall(f"{head}Content-Length: {len(asked)}\r\n\r\n{asked}".encode())
    else:
        thread.start()
    wait_until(lambda: bool((daemon.model("chosen")["download"] or {}).get("done_bytes")), "bytes arrive")
    shown = daemon.model("chosen")
    assert shown["state"] == "reserved"
    assert shown["stage"] == "downloading"
    assert 0 < shown["progress"] < 1
    [worker] = workers(daemon)
    leaving.close()
    if how == "unload":
        answer = daemon.http.post("/api/v1/models/unload", json={"model": "chosen"})
        assert answer.status_code == 200, answer.text
        assert not psutil.pid_exists(worker.pid), "the answer comes after its end"
    elif how == "delete":
        answer = daemon.http.delete("/api/v1/models", params={"model": "a/b:Q4_0"})
        assert answer.status_code == 200, answer.text
        assert not psutil.pid_exists(worker.pid), "the answer comes after its end"
    if how != "leave":
        thread.join()
    wait_until(lambda: not psutil.pid_exists(worker.pid), "the process has ended")
    assert bool(list((daemon.home / "hf").rglob("*.incomplete"))) == (how != "delete"), "what arrived is kept"
    wait_until(lambda: daemon.model("chosen")["download"] is None, "nothing is downloaded")
    if how != "leave":
        assert other[0].json()["error"]["code"] == "load_cancelled"
    hub.faults.clear()
    assert daemon.load("chosen")["state"] == "ready"


def test_other_models_load_while_one_is_downloaded(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 4 << 20)})
    daemon.http.post("/api/v1/plan", json={"target": "chosen"})  # reads the header
    fault = hub.spoil(Fault("/storage/", method="GET", hold=threading.Event()))
    assert fault.hold is not None
    first = daemon.http.post("/api/v1/models/load", json={"target": "chosen", "wait": False})
    assert first.status_code == 202
    wait_until(lambda: daemon.model("chosen")["download"] is not None, "the download begins")
    assert daemon.load(str(talker), ctx_size=4096)["state"] == "ready"
    fault.hold.set()
    assert daemon.load("chosen")["state"] == "ready"


def test_the_events_of_a_load_tell_of_its_download(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 3 << 20)})
    hub.spoil(Fault("/storage/", method="GET", rate=2e6))
    headers = {"Accept": "text/event-stream"}
    with daemon.http.stream("POST", "/api/v1/models/load", json={"target": "a/b:q4_0"}, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:")]
    assert events[-1]["state"] == "ready"
    downloads = [event["download"] for event in events if event["download"]]
    assert [one["done_bytes"] for one in downloads] == sorted(one["done_bytes"] for one in downloads)
    assert any(one["bytes_per_second"] and one["eta_seconds"] for one in downloads)
    assert events[-1]["id"] == "chosen", "the same model as the configured one"


def test_a_projector_comes_along_unless_it_is_not_wanted(
    daemon: RunningDaemon, hub: LocalHub, talker: Path, tmp_path: Path
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "p.gguf", "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_tensor("v.patch_embd.weight", np.zeros((256, 1024), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    hub.add("a/see", {"m-Q4_0.gguf": talker, "mmproj-F16.gguf": tmp_path / "p.gguf"})

    def plan(**options: object) -> dict[str, object]:
        found: dict[str, object] = daemon.http.post(
            "/api/v1/plan", json={"target": "a/see:Q4_0", "options": options}
        ).json()
        return found

    def projector_bytes(found: dict[str, object]) -> int:
        parts = found["parts"]
        assert isinstance(parts, list)
        return sum(part["projector_bytes"] for part in parts)

    assert projector_bytes(plan(mmproj_auto=False)) == 0
    assert projector_bytes(plan()) >= 256 * 1024 * 2
    pulled = daemon.http.post("/api/v1/models", json={"model": "a/see:Q4_0"}).json()
    assert [file["path"] for file in pulled["files"]] == ["m-Q4_0.gguf", "mmproj-F16.gguf"]
    arguments = plan()["arguments"]
    assert isinstance(arguments, list)
    assert arguments[arguments.index("--mmproj") + 1].endswith("mmproj-F16.gguf")
    assert "--mmproj" not in json.dumps(plan(mmproj_auto=False))
    removed = daemon.http.delete("/api/v1/models", params={"model": "a/see"}).json()
    assert len(removed["files"]) == 2


def test_an_update_leaves_a_running_engine_alone(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    first = daemon.load("chosen")
    same = daemon.http.post("/api/v1/models", json={"model": "a/b:Q4_0", "update": True}).json()
    assert same["updated"] is False
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 4096)})
    assert daemon.http.post("/api/v1/models", json={"model": "a/b:Q4_0"}).json()["updated"] is False
    newer = daemon.http.post("/api/v1/models", json={"model": "a/b:Q4_0", "update": True}).json()
    assert newer["updated"] is True
    assert newer["previous"] == same["commit"]
    assert daemon.model("chosen")["pid"] == first["pid"]
    refused = daemon.http.delete("/api/v1/models", params={"model": "a/b"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_in_use")
    daemon.http.post("/api/v1/models/unload", json={"model": "chosen"})
    assert newer["commit"] in daemon.load("chosen")["path"]
    verified = daemon.http.post("/api/v1/models/verify", json={}).json()["models"]
    assert [one["problems"] for one in verified] == [[], []]


def test_what_is_damaged_on_disk_is_found(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    assert daemon.http.post("/models", json={"model": "a/b:Q4_0"}).json() == {"success": True}
    wait_until(lambda: is_on_disk(daemon) and not workers(daemon), "it is on disk, and has been checked")
    [one] = daemon.http.get("/api/v1/disk").json()["models"]
    blob = Path(one["path"]).resolve()
    data = bytearray(blob.read_bytes())
    data[-5] ^= 0xFF
    blob.write_bytes(data)
    [verified] = daemon.http.post("/api/v1/models/verify", json={"model": "a/b:Q4_0"}).json()["models"]
    assert "has the sha256" in verified["problems"][0]
    blob.write_bytes(data[: len(data) // 2])
    assert "bytes, not" in daemon.http.post("/api/v1/models/verify", json={}).json()["models"][0]["problems"][0]
    refused = daemon.http.post("/api/v1/models/load", json={"target": "chosen"})
    assert refused.json()["error"]["code"] == "gguf_invalid", "no engine ever sees it"
    assert daemon.http.delete("/models", params={"model": "chosen"}).json() == {"success": True}
    assert daemon.load("chosen")["state"] == "ready"


def test_a_pull_without_anybody_waiting_ends(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 4 << 20)})
    hub.spoil(Fault("/storage/", method="GET", rate=1e5))
    headers = {"Accept": "text/event-stream"}
    with daemon.http.stream("POST", "/api/v1/models", json={"model": "a/b:Q4_0"}, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if '"done_bytes": 0' not in line and "downloading" in line:
                assert workers(daemon)
                break
    wait_until(lambda: not workers(daemon), "the process has ended")


@pytest.mark.parametrize(
    ("gate", "code", "status"), [("gated", "hub_gated", 403), ("private", "repository_not_found", 404)]
)
def test_refusals_have_their_codes(
    gate: str, code: str, status: int, daemon: RunningDaemon, hub: LocalHub, talker: Path
) -> None:
    setattr(hub.add("a/b", {"m-Q4_0.gguf": talker}), gate, True)
    refused = daemon.http.post("/api/v1/models/load", json={"target": "a/b:q4_0"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    log = (daemon.home / "daemon-output.log").read_text()
    assert hub.token not in log


def test_who_pulls_and_leaves_calls_it_off(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 4 << 20)})
    fault = hub.spoil(Fault("/storage/", method="GET", rate=1e5))
    leave_at(
        daemon, "/api/v1/models", {"model": "a/b:Q4_0"}, lambda: any(one.sent for one in hub.requests("/storage/"))
    )
    wait_until(lambda: not workers(daemon), "the process that downloads is gone")
    hub.faults.remove(fault)
    assert daemon.http.post("/api/v1/models", json={"model": "a/b:Q4_0"}).status_code == 200, "and the next may go on"


def test_the_routers_pull_goes_on_without_its_client(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 1 << 20)})
    hold = hub.spoil(Fault("/storage/", method="GET", hold=threading.Event())).hold
    assert hold is not None
    assert daemon.http.post("/models", json={"model": "a/b:Q4_0"}).json() == {"success": True}
    daemon.http.close()
    hold.set()
    with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as http:
        daemon.http = http
        wait_until(lambda: is_on_disk(daemon), "it is downloaded")


def test_who_verifies_and_leaves_ends_the_reading(daemon: RunningDaemon) -> None:
    cached = daemon.home / "hf" / "hub" / "models--a--b"
    blob, link = cached / "blobs" / ("a" * 64), cached / "snapshots" / ("b" * 40) / "m-Q4_0.gguf"
    for folder in (blob.parent, link.parent):
        folder.mkdir(parents=True)
    blob.touch()
    os.truncate(blob, 1 << 40)  # takes no room, and longer to read than any test
    link.symlink_to(Path("../../blobs") / blob.name)

    def is_read() -> bool:
        return str(blob.resolve()) in {file.path for file in psutil.Process(daemon.pid).open_files()}

    leave_at(daemon, "/api/v1/models/verify", {"model": None}, is_read)
    wait_until(lambda: not is_read(), "nobody reads any more")


def leave_at(daemon: RunningDaemon, path: str, body: object, at: Callable[[], bool]) -> None:
    """Ask for something and close the connection as soon as that is so."""
    sent = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {httpx.URL(daemon.url).netloc.decode()}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    url = httpx.URL(daemon.url)
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(head.encode() + sent)
        wait_until(at, "it has begun")


@pytest.mark.skipif(sys.platform != "linux", reason="a daemon is taken over on Linux alone")
def test_what_waits_for_a_download_goes_on_over_a_restart(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": padded(talker, 4 << 20)})
    hub.add("a/c", {"m-Q4_0.gguf": padded(talker, 4 << 20)})
    hub.spoil(Fault("/storage/", method="GET", rate=1e5))
    answers: dict[str, httpx.Response] = {}

    def ask(name: str, path: str, body: object) -> None:
        with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as client:
            answers[name] = client.post(path, json=body)

    chat = {"model": "chosen", "messages": [{"role": "user", "content": "Hello?"}]}
    asking = [
        threading.Thread(target=ask, args=("chat", "/v1/chat/completions", chat)),
        threading.Thread(target=ask, args=("pull", "/api/v1/models", {"model": "a/c:Q4_0"})),
    ]
    for one in asking:
        one.start()
    wait_until(lambda: len(list((daemon.home / "hf").rglob("*.incomplete"))) == 2, "both have begun")
    before = workers(daemon)
    restarted = daemon.http.post("/api/v1/restart")
    assert restarted.status_code == 200, restarted.text
    assert not any(one.is_running() for one in before), "no process is left of which nobody knows"
    hub.faults.clear()
    for one in asking:
        one.join()
    assert answers["chat"].json()["choices"][0]["message"]["content"] == SAID
    assert answers["pull"].status_code >= 500, "who pulls is told, and repeats it"
    assert daemon.http.post("/api/v1/models", json={"model": "a/c:Q4_0"}).status_code == 200
