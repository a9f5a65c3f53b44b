"""What a streaming client hears while its request waits for a load or for a slot, and what comes after it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.gated import Gate
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

EVERY = 0.1  # seconds between two comments here

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "Hi", "max_tokens": 4},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {**CHAT, "max_tokens": 50},
}


@dataclass
class Gated:
    """A daemon whose loads wait for the gate."""

    daemon: RunningDaemon
    gate: Gate

    def open(self, *, fail: bool = False) -> None:
        """Let loads go on; `fail`: to their failure."""
        self.gate.open(fail=fail)

    def ask(self, path: str = "/v1/chat/completions", **more: Any) -> httpx.Response:
        return self.daemon.http.post(path, json={"model": "talker", "stream": True, **ASKED[path], **more})

    @contextlib.contextmanager
    def asking(self, path: str = "/v1/chat/completions", **more: Any) -> Iterator[Iterator[str]]:
        """The lines of a streamed answer, read up to its first comment."""
        body = {"model": "talker", "stream": True, **ASKED[path], **more}
        with self.daemon.http.stream("POST", path, json=body) as answer:
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
            lines = answer.iter_lines()
            assert next(lines).startswith(": ")
            yield lines


@contextlib.contextmanager
def gated_daemon(engine: Path, folder: Path, talker: Path, seconds: float = EVERY) -> Iterator[Gated]:
    gate = Gate(folder, engine)
    models = {"talker": {"file": str(talker), "parallel": 1, "ctx_size": 8192}}
    settings = {"models": models, "server": {"keep_alive": seconds}, "engine": {"stop_timeout": 1}}
    with scratch_home() as home, running_daemon(home, gate.engine, settings) as daemon:
        yield Gated(daemon, gate)


@pytest.fixture
def gated(engine_binary: Path, tmp_path: Path, talker: Path) -> Iterator[Gated]:
    with gated_daemon(engine_binary, tmp_path, talker) as found:
        yield found


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_a_client_of_ollama_hears_lines_without_text(gated: Gated, path: str) -> None:
    asked: dict[str, Any] = CHAT if path == "/api/chat" else {"prompt": "Hi"}
    with gated.daemon.http.stream("POST", path, json={"model": "talker", **asked}) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
        lines = answer.iter_lines()
        waiting = json.loads(next(lines))
        assert not waiting["done"]
        gated.open()
        told = [waiting, *map(json.loads, lines)]
    said = [line["message"]["content"] if path == "/api/chat" else line["response"] for line in told]
    assert (said[0], "".join(said), told[-1]["done"]) == ("", HELLO, True)


def test_a_load_that_fails_ends_the_lines_of_a_client_of_ollama(gated: Gated) -> None:
    with gated.daemon.http.stream("POST", "/api/chat", json={"model": "talker", **CHAT}) as answer:
        lines = answer.iter_lines()
        next(lines)
        gated.open(fail=True)
        *_, last = map(json.loads, lines)
    assert isinstance(last["error"], str)
    assert last["code"] == "launch_option_refused"


def data(lines: Iterator[str]) -> list[str]:
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


def test_comments_tell_how_far_the_load_is_and_the_answer_follows(gated: Gated) -> None:
    with gated.daemon.http.stream(
        "POST", "/v1/chat/completions", json={"model": "talker", "stream": True, **CHAT}
    ) as a:
        raw = a.iter_raw()
        first = next(raw)
        loading = next(piece for piece in raw if b"42" in piece)
        gated.open()
        rest = b"".join(raw)
    assert first in {b": talker waits for its room\n\n", b": loading talker\n\n", loading}
    assert loading == b": loading talker, 42 %\n\n"
    events = [event for event in rest.split(b"\n\n") if event and not event.startswith(b":")]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == HELLO
    assert events[-1] == b"data: [DONE]"


@pytest.mark.parametrize("fails", [False, True])
def test_what_an_engine_that_comes_up_tells_of_itself_is_waited_for(gated: Gated, fails: bool) -> None:
    gated.daemon.http.post("/api/v1/models/load", json={"target": "talker", "wait": False})
    for look in ("health", "metrics", "v1/models"):
        assert gated.daemon.http.get(f"/upstream/talker/{look}").json()["error"]["code"] == "model_not_loaded"
    with ThreadPoolExecutor() as pool:
        looks = [pool.submit(gated.daemon.http.get, path, params={"model": "talker"}) for path in ("/props", "/slots")]
        looks.append(pool.submit(gated.daemon.http.get, "/upstream/talker/props"))
        assert gated.daemon.model("talker")["state"] in {"reserved", "loading"}
        gated.open(fail=fails)
    assert {look.result().status_code for look in looks} == {503 if fails else 200}


@pytest.mark.parametrize("path", ASKED)
def test_every_dialect_answers_after_comments_as_it_does_without(gated: Gated, path: str) -> None:
    with gated.asking(path) as lines:
        gated.open()
        waited = [line for line in lines if line.startswith(("event:", "data:"))]
    ready = [line for line in gated.ask(path).text.splitlines() if line.startswith(("event:", "data:"))]
    assert len(waited) == len(ready)
    assert [line for line in waited if line.startswith("event:")] == [
        line for line in ready if line.startswith("event")
    ]


def test_the_official_client_does_not_see_them(gated: Gated) -> None:
    with (
        ThreadPoolExecutor() as pool,
        openai.OpenAI(base_url=f"{gated.daemon.url}/v1", api_key="unused", max_retries=0) as client,
    ):
        asked: Any = {"model": "talker", "stream": True, **CHAT}

        def ask(**more: Any) -> list[Any]:
            return list(client.chat.completions.create(**asked, **more))

        chat, with_tools = pool.submit(ask), pool.submit(ask, tools=TOOLS)
        answer = pool.submit(lambda: list(client.responses.create(model="talker", input="Hi", stream=True)))
        wait_until(lambda: gated.daemon.model("talker")["waiting"] == 3, "all of them wait")
        time.sleep(3 * EVERY)
        gated.open()
        for chunks in (chat.result(PATIENCE), with_tools.result(PATIENCE)):
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO
        assert [event.type for event in answer.result(PATIENCE)][-1] == "response.completed"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_load_that_fails_after_a_comment_ends_the_stream_with_the_reason(gated: Gated, path: str) -> None:
    more = {"tools": TOOLS} if path == "/v1/chat/completions" else {}
    with gated.asking(path, **more) as lines:
        gated.open(fail=True)
        error, done = data(lines)
    assert json.loads(error)["error"]["code"] == "launch_option_refused"
    assert json.loads(error)["error"]["log_lines"]
    assert done == "[DONE]"


def test_the_other_apis_say_it_in_their_form(gated: Gated) -> None:
    with gated.asking("/v1/responses") as responses, gated.asking("/v1/messages") as messages:
        gated.open(fail=True)
        events = [line for line in (*responses, *messages) if line.startswith(("event:", "data:"))]
    assert events[::2] == ["event: error", "event: error"]
    first, second = (json.loads(line.removeprefix("data: ")) for line in events[1::2])
    assert (first["type"], first["code"]) == ("error", "launch_option_refused")
    assert (second["type"], second["error"]["code"]) == ("error", "launch_option_refused")


def test_the_official_client_gets_the_reason(gated: Gated) -> None:
    with openai.OpenAI(base_url=f"{gated.daemon.url}/v1", api_key="unused", max_retries=0) as client:
        stream = client.chat.completions.create(model="talker", messages=CHAT["messages"], stream=True)
        gated.open(fail=True)
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert caught.value.code == "launch_option_refused"


def test_what_the_engine_refuses_after_a_comment_ends_the_stream(gated: Gated) -> None:
    with gated.asking(messages=[{"role": "user", "content": "x" * 20_000}]) as lines:
        gated.open()
        error, done = data(lines)
    assert json.loads(error)["error"]["code"] == "context_length_exceeded"
    assert done == "[DONE]"


def test_before_the_first_comment_and_without_a_stream_errors_keep_their_status(
    engine_binary: Path, tmp_path: Path, talker: Path
) -> None:
    with gated_daemon(engine_binary, tmp_path, talker, 30) as late:
        late.open(fail=True)
        assert late.ask().status_code == 503
        assert late.ask(stream=False).status_code == 503


def test_a_client_without_a_stream_and_one_that_is_given_none_hear_nothing(
    engine_binary: Path, tmp_path: Path, talker: Path
) -> None:
    with gated_daemon(engine_binary, tmp_path, talker, 0) as off, ThreadPoolExecutor() as pool:
        streamed = pool.submit(off.ask)
        wait_until(lambda: off.daemon.model("talker")["waiting"] == 1, "it waits")
        config = off.daemon.home / "test.yaml"
        config.write_text(config.read_text().replace("keep_alive: 0", f"keep_alive: {EVERY}"))
        assert off.daemon.http.post("/api/v1/config/reload").json()["restart_needed"] == []
        whole = pool.submit(lambda: off.ask(stream=False))
        wait_until(lambda: off.daemon.model("talker")["waiting"] == 2, "both wait")
        with off.asking() as lines:
            off.open()
            assert data(lines)[-1] == "[DONE]"
        assert not [line for line in streamed.result(PATIENCE).text.splitlines() if line.startswith(":")]
        assert whole.result(PATIENCE).json()["choices"][0]["message"]["content"] == HELLO


def test_a_client_that_leaves_while_it_hears_comments_is_gone(gated: Gated) -> None:
    with gated.asking():
        assert gated.daemon.model("talker")["waiting"] == 1
    wait_until(lambda: gated.daemon.model("talker")["waiting"] == 0, "it is forgotten")
    assert gated.daemon.http.get("/api/v1/requests").json() == {"requests": []}


def test_a_request_that_is_cancelled_while_it_hears_comments_ends_with_the_reason(gated: Gated) -> None:
    with gated.asking() as lines:
        [waiting] = gated.daemon.http.get("/api/v1/requests").json()["requests"]
        assert waiting["state"] == "waiting"
        gated.daemon.http.delete(f"/api/v1/requests/{waiting['id']}")
        error, done = data(lines)
    assert (json.loads(error)["error"]["code"], done) == ("request_cancelled", "[DONE]")


def test_who_waits_for_a_slot_hears_how_many_are_before_and_survives_the_engines_end(gated: Gated) -> None:
    gated.open()
    first = gated.daemon.load("talker")["pid"]
    endless = {"messages": [{"role": "user", "content": "endless"}]}
    with contextlib.ExitStack() as stack:
        body = {"model": "talker", "stream": True, **endless}
        leaving = contextlib.ExitStack()
        answer = leaving.enter_context(gated.daemon.http.stream("POST", "/v1/chat/completions", json=body))
        endlessly = answer.iter_lines()
        assert next(endlessly).startswith("data: ")
        second = stack.enter_context(gated.asking())
        third = stack.enter_context(gated.asking())
        assert next(line for line in third if line) == ": queued behind 1"
        assert next(line for line in second if line) == ": queued behind 0"
        os.kill(first, signal.SIGSTOP)  # takes the request, does not answer
        threading.Thread(target=leaving.close).start()
        wait_until(lambda: gated.daemon.model("talker")["waiting"] == 1, "the second has the slot")
        os.kill(first, signal.SIGKILL)
        for lines in (second, third):
            events = data(lines)
            assert events[-1] == "[DONE]"
            chunks = [json.loads(event) for event in events[:-1]]
            assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == HELLO
    assert gated.daemon.model("talker")["pid"] != first
