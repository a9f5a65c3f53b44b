"""What the engine would refuse is refused, and what it would tell is told, also where tools are seen to here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

TOOLS = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]
USABLE = [{"name": "ping", "input_schema": {"type": "object", "properties": {}}}]
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "max_tokens": 20}

REFUSED: dict[str, dict[str, Any]] = {
    "an unknown choice": {"tool_choice": "zzz"},
    "a grammar": {"grammar": 'root ::= "x"'},
    "a grammar that is empty": {"grammar": ""},
    "a tool without a function": {"tools": [{"type": "function"}]},
    "a tool of another type": {"tools": [{"type": "x", "function": {"name": "ping"}}]},
    "probabilities of a stream": {"logprobs": True, "stream": True},
    "two ways to end the prompt": {"add_generation_prompt": True, "continue_final_message": True},
    "a thinking switch that is text": {"chat_template_kwargs": {"enable_thinking": "yes"}},
}


TOOLLESS = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}<|say:word:think|>"


@pytest.fixture(scope="module")
def toolless(engine_binary: Path, talker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon whose model's template has no place for tools."""
    template = tmp_path_factory.mktemp("templates") / "toolless.jinja"
    template.write_text(TOOLLESS, encoding="utf-8")
    model = {"file": str(talker), "parallel": 2, "ctx_size": 8192, "chat_template_file": str(template)}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": {"talker": model}}) as running:
        yield running


def direct(daemon: RunningDaemon, path: str, body: dict[str, Any]) -> httpx.Response:
    """The engine's own answer."""
    daemon.load("talker")
    transport = httpx.HTTPTransport(uds=daemon.engine_socket("talker"))
    with httpx.Client(transport=transport, base_url="http://engine", timeout=PATIENCE) as client:
        return client.post(path, json=body)


@pytest.mark.parametrize(("mode", "template"), [("auto", "daemon"), ("raw", "daemon"), ("auto", "toolless")])
@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED.keys())
def test_what_the_engine_refuses_is_refused_in_its_words(
    request: pytest.FixtureRequest, fields: dict[str, Any], mode: str, template: str
) -> None:
    daemon: RunningDaemon = request.getfixturevalue(template)
    body = {**ASKED, **fields}
    refused = direct(daemon, "/v1/chat/completions", body)
    assert refused.status_code >= 400
    ours = daemon.http.post("/v1/chat/completions", json={**body, "model": "talker", "tool_calls": mode})
    assert ours.status_code == refused.status_code
    assert ours.json()["error"]["message"] == refused.json()["error"]["message"]


def test_a_template_without_tools_is_told_of_them_all_the_same(toolless: RunningDaemon) -> None:
    answer = toolless.http.post("/v1/chat/completions", json={**ASKED, "model": "talker"})
    own = direct(toolless, "/v1/chat/completions", ASKED)
    assert answer.json()["usage"]["prompt_tokens"] > own.json()["usage"]["prompt_tokens"]


def events(daemon: RunningDaemon, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "talker", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}], **fields}
    text = daemon.http.post("/v1/messages", json={**body, "stream": True}).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("mode", ["auto", "raw", "native", "off"])
@pytest.mark.parametrize("tools", [[], USABLE], ids=["without tools", "with tools"])
def test_a_message_begins_with_what_is_known_of_its_prompt(daemon: RunningDaemon, tools: list[Any], mode: str) -> None:
    first, *_, last, stop = events(daemon, tools=tools, tool_calls=mode)
    assert (first["type"], last["type"], stop["type"]) == ("message_start", "message_delta", "message_stop")
    begun = first["message"]["usage"]
    assert begun["input_tokens"] + begun["cache_read_input_tokens"] > 5
    assert last["usage"] == {**begun, "output_tokens": last["usage"]["output_tokens"]}
    assert last["usage"]["output_tokens"] > 5


@pytest.mark.parametrize("mode", ["auto", "raw", "native", "off"])
@pytest.mark.parametrize("tools", [[], USABLE], ids=["without tools", "with tools"])
def test_a_message_tells_the_stop_word_that_ended_it(daemon: RunningDaemon, tools: list[Any], mode: str) -> None:
    asked = {"tools": tools, "tool_calls": mode, "stop_sequences": [" model"]}
    *_, last, _ = events(daemon, **asked)
    assert last["delta"] == {"stop_reason": "end_turn", "stop_sequence": " model"}
    body = {"model": "talker", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}], **asked}
    whole = daemon.http.post("/v1/messages", json=body).json()
    assert (whole["stop_sequence"], whole["content"][0]["text"]) == (" model", HELLO.partition(" model")[0])
    assert "__verbose" not in json.dumps([*events(daemon, **asked), whole])


@pytest.mark.parametrize("mode", ["auto", "raw", "native", "off"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
def test_an_answer_that_the_client_has_begun_begins_with_that(daemon: RunningDaemon, mode: str, stream: bool) -> None:
    begun = [*ASKED["messages"], {"role": "assistant", "content": "Begun "}]
    body = {**ASKED, "messages": begun, "model": "talker", "tool_calls": mode, "stream": stream}
    answer = daemon.http.post("/v1/chat/completions", json=body)
    if not stream:
        assert answer.json()["choices"][0]["message"]["content"].startswith("Begun ")
        return
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert said.startswith("Begun ")


def test_of_another_path_below_upstream_errors_come_as_the_engine_says_them(daemon: RunningDaemon) -> None:
    for path, body in (("/completion", {}), ("/v1/responses", {"input": 3}), ("/v1/messages", {"max_tokens": 3})):
        refused = direct(daemon, path, body)
        ours = daemon.http.post(f"/upstream/talker{path}", json=body)
        assert (ours.status_code, ours.content) == (refused.status_code, refused.content)
    broken = daemon.http.post("/upstream/talker/completion", content=b'{"prompt": ')
    assert broken.status_code >= 400


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "<|say|>", "n_predict": 5}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/messages", {"messages": ASKED["messages"], "max_tokens": 50}),
        ("/chat/completions", {"messages": ASKED["messages"]}),
    ],
    ids=["raw", "responses", "messages", "chat"],
)
def test_below_upstream_a_generation_says_what_the_engine_would(
    daemon: RunningDaemon, path: str, body: dict[str, Any], stream: bool
) -> None:
    own = direct(daemon, path, {**body, "stream": stream})
    ours = daemon.http.post(f"/upstream/talker{path}", json={**body, "stream": stream})
    assert ours.status_code == own.status_code == 200
    kinds = [answer.headers["content-type"].partition(";")[0] for answer in (ours, own)]
    assert kinds[0] == kinds[1]
    assert "prompt_progress" not in ours.text
    if stream:
        assert ours.text.rstrip().split("\n")[-1].split(":")[:2] == own.text.rstrip().split("\n")[-1].split(":")[:2]
    else:
        assert ours.json().keys() == own.json().keys()
