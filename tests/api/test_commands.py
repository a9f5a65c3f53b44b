"""Engines that are commands: a real server that speaks OpenAI's API, by socket and by port, behind a daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

SERVER = Path(__file__).parents[1] / "fakes" / "openai_server.py"
APIS = ["/v1/chat/completions", "/v1/images/generations", "/v1/audio/speech", "/v1/audio/transcriptions"]


def command(*where: str) -> dict[str, Any]:
    return {"source": "command", "command": [sys.executable, str(SERVER), *where], "memory": {"CPU": "64MiB"}}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen") / "journal"


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, journal: Path) -> Iterator[RunningDaemon]:
    seen = (
        "--journal",
        str(journal),
        "--api-key",
        SECRET,
        "--also",
        f"HF_TOKEN={SECRET}",
        f"Cookie: {SECRET} {SECRET}",
    )
    models = {
        "socket": {
            **command("--socket", "${SOCKET}", *seen),
            "apis": APIS,
            "slots": 1,
            "env": {"TOKEN": "abc"},
            "sampling": {"temperature": 0.25},
            "stop": ["true", "--password", SECRET],
        },
        "port": {**command("--port", "${PORT}", *seen), "ready": "none", "model_name": "theirs", "apis": APIS},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


SECRET = "a-word-that-nobody-may-read"
BOTH = pytest.mark.parametrize("model", ["socket", "port"])
NAMES = {"socket": "socket", "port": "theirs"}


def noted(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


@BOTH
def test_a_chat_is_answered_as_the_server_answers_it(daemon: RunningDaemon, model: str) -> None:
    answer = daemon.chat(model, "hi")
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == f"{NAMES[model]}: hi"
    assert answer.json()["own"] == 1.0


@BOTH
def test_the_server_gets_the_request_as_it_was_and_what_is_configured(
    daemon: RunningDaemon, journal: Path, model: str
) -> None:
    daemon.chat(model, "look", seed=7)
    asked = noted(journal)[-1]["asked"]
    default = {"temperature": 0.25} if model == "socket" else {}
    assert asked == {"model": NAMES[model], "messages": [{"role": "user", "content": "look"}], "seed": 7, **default}


@BOTH
def test_a_stream_is_relayed_byte_for_byte(daemon: RunningDaemon, model: str) -> None:
    answer = daemon.chat(model, "hi", stream=True, max_tokens=2)
    chunks = [json.dumps({"choices": [{"index": 0, "delta": {"content": f"word{n} "}}], "own": 1.0}) for n in (1, 2)]
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.text == "".join(f"data: {chunk}\r\n\r\n" for chunk in (*chunks, "[DONE]"))


@BOTH
def test_a_client_that_leaves_ends_the_request_at_the_server(daemon: RunningDaemon, journal: Path, model: str) -> None:
    before = sum("left" in one for one in noted(journal)) if journal.exists() else 0
    body = {"model": model, "messages": [{"role": "user", "content": "for ever"}], "stream": True}
    with daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(answer.iter_lines())
    wait_until(lambda: sum("left" in one for one in noted(journal)) > before, "the server sees that the client left")
    wait_until(lambda: daemon.model(model)["leases"] == 0, "the lease is given back")


def test_more_requests_than_slots_wait(daemon: RunningDaemon) -> None:
    daemon.chat("socket", "hi")
    assert daemon.model("socket")["n_slots"] == 1
    body = {"model": "socket", "messages": [{"role": "user", "content": "for ever"}], "stream": True}
    with daemon.http.stream("POST", "/v1/chat/completions", json=body) as one:
        lines = one.iter_lines()  # whoever lets go of it, leaves
        next(lines)
        with daemon.http.stream("POST", "/v1/chat/completions", json=body | {"max_tokens": 1}) as other:
            wait_until(lambda: daemon.model("socket")["waiting"] == 1, "the second request waits")
            one.close()
            assert next(line for line in other.iter_lines() if line.startswith("data:"))


@BOTH
def test_pictures_and_speech_and_recordings_pass(daemon: RunningDaemon, model: str) -> None:
    picture = daemon.http.post("/v1/images/generations", json={"model": model, "prompt": "a cat", "n": 50_000})
    assert picture.json() == {"created": 1, "data": [{"b64_json": "QUJD" * 50_000}]}
    speech = daemon.http.post("/v1/audio/speech", json={"model": model, "input": "hello", "voice": "x"})
    assert (speech.headers["content-type"], speech.content[-5:]) == ("audio/wav", b"hello")
    heard = daemon.http.post(
        "/v1/audio/transcriptions",
        data={"model": model, "response_format": "srt"},
        files={"file": ("a.wav", b"RIFF" * 1000, "audio/wav")},
    )
    assert (heard.status_code, heard.text) == (200, "1\n00:00 hello\n")
    assert heard.headers["content-type"] == "text/plain"


@BOTH
@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/{}", "/models", "/running", "/api/v1/status", "/api/v1/config"]
)
def test_no_secret_of_its_command_is_shown(daemon: RunningDaemon, model: str, path: str) -> None:
    daemon.chat(model, "hi")
    answer = daemon.http.get(path.format(model))
    assert answer.status_code == 200
    assert model in answer.text
    assert SECRET not in answer.text


INSIDE = "http://127.0.0.1:1/x"


@BOTH
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/{}/v1/chat/completions", "/upstream/{}/theirs"])
@pytest.mark.parametrize(
    "part",
    [
        {"image_url": {"url": INSIDE}},
        {"type": "audio_url", "audio_url": {"url": INSIDE}},
        {"type": "image", "image": f"{' ' * 80}{INSIDE}"},
        {"type": "image_url", "image_url": "s3://bucket/x"},
    ],
    ids=["a part without a type", "sound", "blanks before it", "another scheme"],
)
def test_the_server_gets_no_address_that_it_might_fetch(
    daemon: RunningDaemon, journal: Path, model: str, path: str, part: dict[str, Any]
) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": [part]}]}
    answer = daemon.http.post(path.format(model), json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_url_refused")
    assert not journal.exists() or all(part not in _parts(one) for one in noted(journal))


def _parts(seen: dict[str, Any]) -> list[Any]:
    messages = (seen.get("asked") or {}).get("messages") or ()
    return [part for message in messages for part in message["content"] if isinstance(message["content"], list)]


def test_what_the_engine_does_not_answer_is_refused_by_name_and_starts_nothing(daemon: RunningDaemon) -> None:
    daemon.http.post("/api/v1/models/unload", json={"model": "port"})
    for path, body in {"/v1/embeddings": {"input": "a"}, "/tokenize": {"content": "a"}}.items():
        answer = daemon.http.post(path, json={"model": "port", **body})
        assert answer.status_code == 501
        error = answer.json()["error"]
        assert error["code"] == "not_supported_by_engine"
        assert path in error["message"]
        assert "/v1/images/generations" in error["message"]
    props = daemon.http.get("/props", params={"model": "port"})
    assert (props.status_code, props.json()["error"]["code"]) == (501, "not_supported_by_engine")
    assert daemon.model("port")["state"] == "unloaded"


def test_a_gguf_model_makes_no_pictures(daemon: RunningDaemon) -> None:
    answer = daemon.http.post("/v1/images/generations", json={"model": "demo", "prompt": "a cat"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_supported_by_engine")


@BOTH
def test_errors_of_the_server_have_our_form(daemon: RunningDaemon, model: str) -> None:
    refused = daemon.chat(model, "refuse")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert "field required" in refused.json()["error"]["message"]
    lacking = daemon.http.post("/v1/audio/transcriptions", data={"model": model}, files={"other": ("a", b"x")})
    assert lacking.status_code == 400
    assert lacking.json()["error"]["message"] == "no 'file' field in the request"
    assert lacking.json()["error"]["code"] == "invalid_request"
    crashed = daemon.chat(model, "crash")
    assert (crashed.status_code, crashed.json()["error"]["code"]) == (500, "engine_error")


@BOTH
def test_upstream_gives_the_servers_own_paths(daemon: RunningDaemon, model: str) -> None:
    daemon.chat(model, "hi")
    assert daemon.http.get(f"/upstream/{model}/anything").text == "ok"
    body = {"model": "mine", "messages": [{"role": "user", "content": "hi"}]}
    answer = daemon.http.post(f"/upstream/{model}/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "mine: hi"


@BOTH
def test_an_engine_that_dies_is_started_again(daemon: RunningDaemon, model: str) -> None:
    daemon.chat(model, "hi")
    pid = daemon.model(model)["pid"]
    died = daemon.chat(model, "die")
    assert (died.status_code, died.json()["error"]["code"]) == (502, "engine_lost")
    assert daemon.chat(model, "hi").status_code == 200
    assert daemon.model(model)["pid"] != pid


@BOTH
def test_a_stream_that_ends_with_its_connection_is_not_taken_for_whole(daemon: RunningDaemon, model: str) -> None:
    """The connection of a process that died ends as that of one that had said all."""
    died = daemon.chat(model, "die midway", stream=True).text
    assert died.startswith('data: {"choices"')
    assert died.count("word") == 1
    said, last = list(filter(None, died.splitlines()))[-2:]
    assert (json.loads(said.removeprefix("data: "))["error"]["code"], last) == ("engine_lost", "data: [DONE]")
    assert daemon.chat(model, "hi", stream=True).text.count("word") == 3


def test_its_log_is_kept_and_its_environment_is_the_configured_one(daemon: RunningDaemon) -> None:
    daemon.chat("socket", "hi")
    text = daemon.http.get("/api/v1/logs", params={"model": "socket"}).text
    assert "TOKEN=abc" in text


def test_an_unload_ends_the_process(daemon: RunningDaemon) -> None:
    daemon.chat("socket", "hi")
    pid = daemon.model("socket")["pid"]
    daemon.http.post("/api/v1/models/unload", json={"model": "socket"})
    assert not psutil.pid_exists(pid)


def test_it_is_planned_by_what_it_was_seen_to_hold(daemon: RunningDaemon) -> None:
    daemon.chat("port", "hi")
    status = daemon.model("port")
    assert status["source"] == "command"
    assert status["plan"]["parts"][0]["name"] == "CPU"
    held = status["footprint"]["CPU"]
    assert 4 << 20 < held < 64 << 20
    daemon.http.post("/api/v1/models/unload", json={"model": "port"})

    def learned() -> bool:
        plan = daemon.http.post("/api/v1/plan", json={"target": "port"}).json()
        return bool(plan["learned"]) and plan["parts"][0]["total_bytes"] < 64 << 20

    wait_until(learned, "the next plan knows what it held")


def test_options_of_llama_server_are_refused_by_name(daemon: RunningDaemon) -> None:
    answer = daemon.http.post("/api/v1/models/load", json={"target": "port", "options": {"ctx_size": 4096}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "ctx_size")
    estimate = daemon.http.post("/api/v1/estimate", json={"target": "port"})
    assert (estimate.status_code, estimate.json()["error"]["code"]) == (501, "not_supported_by_engine")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def troubled(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("troubled")
    (folder / "taken").touch()
    unsaid = {key: value for key, value in command("--socket", "${SOCKET}").items() if key != "memory"}
    models = {
        "unsaid": unsaid,
        "huge": {**command("--socket", "${SOCKET}"), "memory": {"CPU": "8t"}},
        "elsewhere": {**command("--socket", "${SOCKET}"), "memory": {"CUDA7": "8g"}},
        "ends": {**command("--socket", "/nowhere/${SOCKET}")},
        "taken": command("--port", "${PORT}", "--taken", str(folder / "taken")),
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def test_memory_that_nobody_knows_is_asked_for(troubled: RunningDaemon) -> None:
    answer = troubled.chat("unsaid", "hi")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "memory_unknown")
    assert "CPU: 2g" in answer.json()["error"]["message"]


def test_what_does_not_fit_says_the_numbers(troubled: RunningDaemon) -> None:
    answer = troubled.chat("huge", "hi")
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "does_not_fit")
    assert "CPU: 8192.0 GiB needed" in answer.json()["error"]["message"]
    plan = troubled.http.post("/api/v1/plan", json={"target": "elsewhere"}).json()
    assert (plan["fits"], plan["shortages"][0]["device"]) == (False, "CUDA7")
    assert "There is no CUDA7 here" in plan["hints"][0]


def test_one_that_ends_at_once_says_why(troubled: RunningDaemon) -> None:
    answer = troubled.chat("ends", "hi")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "model_load_failed"
    assert troubled.model("ends")["error"]["log_lines"]


def test_a_port_that_was_taken_meanwhile_is_changed(troubled: RunningDaemon) -> None:
    answer = troubled.chat("taken", "hi")
    assert answer.status_code == 200, answer.text
    assert len(troubled.model("taken")["fallbacks"]) == 1


def test_a_killed_daemon_takes_its_engines_along(engine_binary: Path) -> None:
    models = {"a": command("--socket", "${SOCKET}"), "b": command("--port", "${PORT}")}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        pids = [daemon.load(model)["pid"] for model in models]
        daemon.process.kill()
        daemon.process.wait()
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the engines have ended")


@pytest.mark.parametrize("path", ["/api/chat", "/api/v0/chat/completions"])
def test_other_programs_apis_are_for_models_of_llama_cpp(daemon: RunningDaemon, path: str) -> None:
    refused = daemon.http.post(path, json={"model": "socket", "messages": [{"role": "user", "content": "hi"}]})
    error = refused.json()["error"]
    code, text = (refused.json()["code"], error) if isinstance(error, str) else (error["code"], error["message"])
    assert (refused.status_code, code) == (501, "not_supported_by_engine")
    assert path in text
    assert "/v1/chat/completions" in text
    assert "socket:latest" in [model["name"] for model in daemon.http.get("/api/tags").json()["models"]]


def test_the_history_knows_what_it_answered(daemon: RunningDaemon) -> None:
    daemon.chat("port", "hi", stream=True, max_tokens=5, stream_options={"include_usage": True})
    daemon.chat("port", "hi")
    wait_until(daemon.at_rest, "both have ended")

    def newest() -> list[dict[str, Any]]:
        found = daemon.http.get("/api/v1/history", params={"model": "port", "limit": 2}).json()
        return list(found["requests"])

    wait_until(lambda: len(newest()) == 2, "both are written down")
    whole, stream = newest()
    assert (stream["prompt_tokens"], stream["completion_tokens"]) == (11, 5)
    assert stream["first"] is not None
    assert whole["prompt_tokens"] == 3


def test_what_it_holds_is_shown_on_its_device(daemon: RunningDaemon) -> None:
    daemon.chat("port", "hi")
    host = daemon.http.get("/api/v1/memory").json()["devices"][-1]
    (held,) = [one for one in host["held"] if one["model"] == "port"]
    assert held["measured"]
    assert 4 << 20 < held["other_bytes"] < 64 << 20
