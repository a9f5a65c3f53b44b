"""Captured prompts and answers on a real daemon and engine: kept where it is wanted, nowhere else, and sent again."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.api.large import told
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = pytest.mark.engine

ROOT = "the-key-of-the-configuration"
CHAT = "/v1/chat/completions"
WHERE = "/api/v1/captures"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon that asks for keys and captures what is asked of `talker`, and by the key `watched`."""
    one = {"file": str(talker), "parallel": 4, "ctx_size": 65536}
    settings = {
        "models": {"talker": one, "silent": one},
        "capture": {"models": ["talker"], "keys": ["watch*"], "max_record_kib": 64},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, settings, env={"SUPERVISOR_API_KEY": ROOT}) as it:
        it.http.headers["authorization"] = f"Bearer {ROOT}"
        yield it


@pytest.fixture(autouse=True)
def _none_before(request: pytest.FixtureRequest) -> None:
    if "daemon" in request.fixturenames:
        request.getfixturevalue("daemon").http.delete(WHERE)


def said(text: str, model: str = "talker", **more: object) -> Json:
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


def listed(daemon: RunningDaemon, **query: str | int) -> list[Json]:
    found: list[Json] = daemon.http.get(WHERE, params=query).json()["captures"]
    return found


def captured(daemon: RunningDaemon, count: int = 1) -> list[Json]:
    """So many captured requests, whole, newest first; one is there a moment after its answer."""
    wait_until(lambda: len(listed(daemon)) >= count, f"{count} captured requests")
    found = [daemon.http.get(f"{WHERE}/{one['id']}").json() for one in listed(daemon)]
    assert len(found) == count
    return found


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_is_kept_with_its_answer_as_one_object(daemon: RunningDaemon, stream: bool) -> None:
    body = said("hello, my secret prompt", stream=stream)
    answer = daemon.http.post(CHAT, json=body, headers={"cookie": "a=1", "x-api-key": "no", "x-mine": "yes"})
    (one,) = captured(daemon)
    assert one["request"] == body
    assert (one["path"], one["model"], one["stream"], one["status"]) == (CHAT, "talker", stream, 200)
    assert one["request_id"] == answer.headers["x-request-id"]
    assert (one["request_left_out"], one["answer_left_out"], one["replayable"]) == ([], [], True)
    text = one["answer"]["choices"][0]["message"]["content"]
    assert text
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        assert text == "".join(each["delta"].get("content") or "" for event in events for each in event["choices"])
    else:
        assert one["answer"] == answer.json()
    kept = one["headers"]
    assert (kept["authorization"], kept["cookie"], kept["x-api-key"]) == ("(hidden)", "(hidden)", "(hidden)")
    assert kept["x-mine"] == "yes"
    assert ROOT not in json.dumps(one)


@pytest.mark.parametrize("path", ["/v1/completions", "/completion", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("stream", [True, False])
def test_every_api(daemon: RunningDaemon, path: str, stream: bool) -> None:
    body: Json = said("hello", stream=stream)
    if "completion" in path:
        body["prompt"] = body.pop("messages")[0]["content"]
    elif "responses" in path:
        body["input"] = body.pop("messages")[0]["content"]
    assert daemon.http.post(path, json=body).status_code == 200
    (one,) = captured(daemon)
    assert (one["path"], one["request"]) == (path, body)
    assert isinstance(one["answer"], str if stream and path == "/v1/messages" else dict)


def test_only_what_is_wanted_is_kept(daemon: RunningDaemon) -> None:
    """By its model, by its key; below /upstream as well."""
    keys = {}
    for name in ("watched", "unwatched"):
        daemon.http.delete(f"/api/v1/keys/{name}")
        keys[name] = daemon.http.post("/api/v1/keys", json={"name": name}).json()["key"]
    for path in (CHAT, f"/upstream/silent{CHAT}"):
        for name in keys:
            headers = {"authorization": f"Bearer {keys[name]}"}
            assert daemon.http.post(path, json=said("hello", "silent"), headers=headers).status_code == 200
    assert daemon.http.post(f"/upstream/talker{CHAT}", json=said("hello")).status_code == 200
    found = captured(daemon, 3)
    assert [(one["path"], one["model"], one["key"]) for one in found] == [
        (f"/upstream/MODEL{CHAT}", "talker", None),
        (f"/upstream/MODEL{CHAT}", "silent", "watched"),
        (CHAT, "silent", "watched"),
    ]
    assert [one["key"] for one in listed(daemon, key="watched")] == ["watched", "watched"]
    assert len(listed(daemon, model="talker")) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves(daemon: RunningDaemon, stream: bool) -> None:
    daemon.load("talker")
    body = said("endless", stream=stream, max_tokens=100_000)
    if stream:
        with daemon.http.stream("POST", CHAT, json=body) as answer:
            chunks = answer.iter_lines()
            while "content" not in next(chunks):
                pass
    else:
        daemon.leave(CHAT, body)
    (one,) = captured(daemon)
    assert (one["status"], one["code"], one["request"]) == (499, "client_gone", body)
    if stream:
        assert one["answer"]["choices"][0]["message"]["content"]
    else:
        assert one["answer"] is None


def test_a_cancelled_stream_is_kept_as_far_as_it_went(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    with daemon.http.stream("POST", CHAT, json=said("endless", stream=True, max_tokens=100_000)) as answer:
        chunks = answer.iter_lines()
        while "content" not in next(chunks):
            pass
        (running,) = daemon.http.get("/api/v1/requests").json()["requests"]
        assert daemon.http.delete(f"/api/v1/requests/{running['id']}").status_code == 200
        list(chunks)
    (one,) = captured(daemon)
    assert (one["status"], one["code"]) == (200, "request_cancelled")
    assert one["answer"]["choices"][0]["message"]["content"]
    assert one["answer"]["error"]["code"] == "request_cancelled"


def test_a_request_that_is_refused_is_kept_without_an_answer(daemon: RunningDaemon) -> None:
    answer = daemon.http.post(CHAT, json=said("hello", temperature="hot"))
    assert answer.status_code == 400
    (one,) = captured(daemon)
    assert (one["status"], one["code"], one["answer"]) == (400, answer.json()["error"]["code"], None)


def test_media_is_left_out_and_said_so(daemon: RunningDaemon) -> None:
    """The model takes none, which the engine says; it is captured all the same."""
    url = "data:image/png;base64," + base64.b64encode(bytes(3000)).decode()
    content = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    daemon.http.post(CHAT, json={"model": "talker", "messages": [{"role": "user", "content": content}]})
    (one,) = captured(daemon)
    text, image = one["request"]["messages"][0]["content"]
    assert text["text"] == "look"
    assert image["image_url"]["url"] == f"[image/png, {len(url)} characters left out]"
    assert (one["request_left_out"], one["replayable"]) == (["media"], False)
    refused = daemon.http.post(f"{WHERE}/{one['id']}/replay", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "capture_incomplete")


def test_a_form_is_kept_without_its_file(daemon: RunningDaemon) -> None:
    files = {"file": ("a.wav", b"RIFF not really a sound", "audio/wav")}
    daemon.http.post("/v1/audio/transcriptions", files=files, data={"model": "talker", "language": "en"})
    (one,) = captured(daemon)
    assert (one["request"]["language"], one["request_left_out"]) == ("en", ["files"])
    assert "RIFF" not in json.dumps(one)
    assert daemon.http.post(f"{WHERE}/{one['id']}/replay", json={}).status_code == 409


@pytest.mark.parametrize("size", [100_000, 2_000_000])
def test_a_large_prompt_is_cut_and_said_so(daemon: RunningDaemon, size: int) -> None:
    """One that is parsed as a whole, and one that is read in outline."""
    daemon.http.post(CHAT, json=said("word " * (size // 5)))
    (one,) = captured(daemon)
    assert one["request_left_out"] == (["end"] if size < 200_000 else ["texts"])
    assert "word word" in json.dumps(one["request"])
    assert len(json.dumps(one["request"])) < 70_000
    assert one["size_bytes"] < 2 * 65_536 + 10_000
    assert daemon.http.post(f"{WHERE}/{one['id']}/replay", json={}).status_code == 409


@pytest.mark.parametrize("stream", [None, True, False])
def test_one_is_sent_again(daemon: RunningDaemon, stream: bool | None) -> None:
    body = said("hello", temperature=0, seed=1)
    first = daemon.http.post(CHAT, json=body)
    (one,) = captured(daemon)
    wanted = {} if stream is None else {"stream": stream}
    again = daemon.http.post(f"{WHERE}/{one['id']}/replay", json=wanted)
    assert again.status_code == 200
    if stream:
        assert again.headers["content-type"] == "text/event-stream"
        assert again.text.endswith("data: [DONE]\n\n")
    else:
        assert again.json()["choices"] == first.json()["choices"]
    newest, _ = captured(daemon, 2)
    assert newest["request"]["messages"] == body["messages"]


def test_one_is_sent_to_another_model(daemon: RunningDaemon) -> None:
    daemon.http.post(f"/upstream/talker{CHAT}", json=said("hello"))
    (one,) = captured(daemon)
    again = daemon.http.post(f"{WHERE}/{one['id']}/replay", json={"model": "silent"})
    assert (again.status_code, again.json()["model"]) == (200, "silent")
    nobody = daemon.http.post(f"{WHERE}/{one['id']}/replay", json={"model": "nobody"})
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (404, "model_not_found")
    newest = daemon.http.get("/api/v1/history", params={"model": "silent", "limit": 1}).json()["requests"][0]
    assert (newest["path"], newest["status"]) == (CHAT, 200)


def test_who_leaves_a_replay_ends_it(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    with daemon.http.stream("POST", CHAT, json=said("endless", stream=True, max_tokens=100_000)) as answer:
        next(answer.iter_bytes())
    (one,) = captured(daemon)
    with daemon.http.stream("POST", f"{WHERE}/{one['id']}/replay", json={}) as again:
        events = again.iter_lines()
        next(events)
        assert not daemon.at_rest()
    wait_until(daemon.at_rest, "the replay has ended")
    wait_until(lambda: daemon.busy_slots("talker") == 0, "its slot is free")
    assert captured(daemon, 2)[0]["code"] == "client_gone"


def test_only_who_manages_may_look(daemon: RunningDaemon) -> None:
    daemon.http.post(CHAT, json=said("hello"))
    (one,) = captured(daemon)
    daemon.http.delete("/api/v1/keys/reader")
    key = daemon.http.post("/api/v1/keys", json={"name": "reader", "scopes": ["read", "infer"]}).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    for path in (WHERE, f"{WHERE}/export", f"{WHERE}/{one['id']}"):
        assert daemon.http.get(path, headers=headers).status_code == 403, path
    for path in (WHERE, f"{WHERE}/{one['id']}"):
        assert daemon.http.delete(path, headers=headers).status_code == 403, path
    assert daemon.http.post(f"{WHERE}/{one['id']}/replay", json={}, headers=headers).status_code == 403
    assert daemon.http.get(WHERE).headers["cache-control"] == "no-store"


def test_pages_an_export_and_deletion(daemon: RunningDaemon) -> None:
    for number in range(5):
        daemon.http.post(CHAT, json=said(f"hello {number}"))
    every = captured(daemon, 5)
    page = daemon.http.get(WHERE, params={"limit": 3}).json()
    assert page["on"] is True
    rest = daemon.http.get(WHERE, params={"limit": 3, "before": page["next"]}).json()
    assert [one["id"] for one in page["captures"] + rest["captures"]] == [one["id"] for one in every]
    assert rest["next"] is None
    export = daemon.http.get(f"{WHERE}/export")
    assert [json.loads(line) for line in export.text.splitlines()] == every
    assert daemon.http.delete(f"{WHERE}/{every[0]['id']}").json() == {"deleted": 1}
    gone = daemon.http.get(f"{WHERE}/{every[0]['id']}")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "record_not_found")
    assert daemon.http.delete(f"{WHERE}/{every[0]['id']}").status_code == 404
    assert daemon.http.delete(WHERE).json() == {"deleted": 4}
    assert listed(daemon) == []


def test_the_file_is_for_its_owner_alone_and_forgets(daemon: RunningDaemon) -> None:
    word = "unmistakable-word-of-a-prompt"
    daemon.http.post(CHAT, json=said(word))
    captured(daemon)
    files = list(daemon.home.glob("captures.db*"))
    assert files
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
    assert any(word.encode() in one.read_bytes() for one in files)
    assert not [one for one in daemon.home.glob("history.db*") if word.encode() in one.read_bytes()]
    daemon.http.delete(WHERE)
    assert not [one for one in daemon.home.glob("captures.db*") if word.encode() in one.read_bytes()]


def test_nothing_is_captured_unless_it_is_configured_and_a_reload_counts_at_once(
    engine_binary: Path, talker: Path
) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": {"m": {"file": str(talker)}}}) as it:
        assert it.chat("m", "hello", max_tokens=1).status_code == 200
        assert it.http.get(WHERE).json() == {"on": False, "captures": [], "next": None}
        assert not list(home.glob("captures.db*"))
        settings = {"models": {"m": {"file": str(talker)}}, "capture": {"models": ["*"], "max_records": 2}}
        (home / "test.yaml").write_text(json.dumps(settings))
        assert it.http.post("/api/v1/config/reload").status_code == 200
        for number in range(4):
            assert it.chat("m", f"hello {number}", max_tokens=1).status_code == 200
        wait_until(lambda: "3" in json.dumps(_prompts(it)), "the last one is there")
        assert _prompts(it) == ["hello 3", "hello 2"]


def _prompts(daemon: RunningDaemon) -> list[str]:
    whole = [daemon.http.get(f"{WHERE}/{one['id']}").json() for one in listed(daemon)]
    return [one["request"]["messages"][0]["content"] for one in whole]


def test_captures_stay_after_a_restart(engine_binary: Path, talker: Path) -> None:
    settings = {"models": {"m": {"file": str(talker)}}, "capture": {"models": ["m"]}}
    with scratch_home() as home:
        with running_daemon(home, engine_binary, settings) as it:
            assert it.chat("m", "hello", max_tokens=1).status_code == 200
        with running_daemon(home, engine_binary, {}) as it:
            assert _prompts(it) == ["hello"]
            assert it.http.get(WHERE).json()["on"] is False


def test_streams_side_by_side_are_not_mixed_up(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    asked = [
        threading.Thread(target=daemon.chat, args=("talker", f"hello {n}"), kwargs={"stream": True, "max_tokens": 4})
        for n in range(8)
    ]
    for one in asked:
        one.start()
    for one in asked:
        one.join()
    found = captured(daemon, 8)
    assert {one["request"]["messages"][0]["content"] for one in found} == {f"hello {n}" for n in range(8)}
    assert all(one["answer"]["choices"][0]["finish_reason"] == "length" for one in found)


def test_what_clients_have_said_is_written_in_a_thread() -> None:
    """It may be megabytes, of which the loop would serve nobody else."""
    threads: list[threading.Thread] = []

    def answer() -> dict[str, Any]:
        threads.append(threading.current_thread())
        return {"a": 1}

    answered = asyncio.run(told(answer))
    assert (answered.body, answered.headers["cache-control"]) == (b'{"a":1}', "no-store")
    assert threading.main_thread() not in threads
