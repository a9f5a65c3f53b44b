"""What a model sets for its requests, with a real engine: defaults that clients override, and a limit of time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import ENDLESS
from tests.api.test_parameters import PATHS
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

pytestmark = pytest.mark.engine

WHY = "The answer was ended after 2 s, the `max_seconds` of 'short'."
LIMITED: dict[str, dict[str, Any]] = {
    **{
        path: {"messages": [{"role": "user", "content": "endless"}]}
        for path in ("/v1/chat/completions", "/v1/messages")
    },
    "/v1/completions": {"prompt": "<|say:word:endless|>"},
    "/completion": {"prompt": "<|say:word:endless|>"},
    "/v1/responses": {"input": "endless"},
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    of_all = {"file": str(talker), "ctx_size": 131072, "parallel": 2}
    models = {
        "set": {**of_all, "sampling": {"max_tokens": 3, "top_k": 7, "repetition_penalty": 1.5}},
        "capped": {**of_all, "filters": {"set": {"max_tokens": 3}}},
        "short": {**of_all, "max_seconds": 2, "sampling": {"max_tokens": -1}},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def written(path: str, answer: Any) -> int:
    """The tokens of an answer."""
    usage = answer.get("usage", {})
    names = ("completion_tokens", "output_tokens")
    return int(next((usage[name] for name in names if name in usage), answer.get("tokens_predicted", 0)))


@pytest.mark.parametrize("path", [path for path in PATHS if path not in {"/infill", "/v1/messages"}])
def test_defaults_count_where_a_request_says_nothing(daemon: RunningDaemon, path: str) -> None:
    answer = daemon.http.post(path, json={"model": "set", **PATHS[path]})
    assert written(path, answer.json()) == 3
    answer = daemon.http.post(path, json={"model": "set", **PATHS[path], "max_tokens": 5})
    assert written(path, answer.json()) == 5


@pytest.mark.parametrize("name", ["n_predict", "max_tokens", "max_completion_tokens", "max_new_tokens"])
def test_what_is_set_counts_whatever_name_a_client_has_for_it(daemon: RunningDaemon, name: str) -> None:
    for path in ("/v1/chat/completions", "/completion"):
        answer = daemon.http.post(path, json={"model": "capped", **PATHS[path], name: 9})
        assert written(path, answer.json()) == 3, path


def test_defaults_reach_the_engine_under_its_names(daemon: RunningDaemon) -> None:
    asked = {"model": "set", "prompt": "Hi", "top_k": None}
    settings = daemon.http.post("/completion", json=asked).json()["generation_settings"]
    assert (settings["top_k"], settings["repeat_penalty"], settings["max_tokens"]) == (7, 1.5, 3)
    settings = daemon.http.post("/completion", json={**asked, "top_k": 9, "repeat_penalty": 2}).json()
    assert (settings["generation_settings"]["top_k"], settings["generation_settings"]["repeat_penalty"]) == (9, 2)


def is_said(text: str) -> bool:
    """Whether it is the beginning of the endless answer: how much comes in time is the machine's."""
    return len(text) > 2 and (ENDLESS * 10_000).startswith(text)


def texts_in(answer: Any) -> Iterator[str]:
    """Every text in an answer."""
    if isinstance(answer, str):
        yield answer
    inner = answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ()
    for one in inner:
        yield from texts_in(one)


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize(
    "tools", [{}, {"tools": TOOLS}, {"tools": TOOLS, "tool_calls": "raw"}], ids=["", "tools", "raw"]
)
def test_a_streamed_chat_ends_with_its_length_and_says_why(daemon: RunningDaemon, tools: dict[str, Any]) -> None:
    asked = {"model": "short", **LIMITED["/v1/chat/completions"], **tools, "stream": True}
    text = daemon.http.post("/v1/chat/completions", json=asked).text
    said = events(text)
    assert is_said("".join(one["choices"][0]["delta"].get("content") or "" for one in said))
    assert said[-1]["choices"][0]["finish_reason"] == "length"
    assert len({one["id"] for one in said}) == 1
    assert f": {WHY}\n\n" in text
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("path", LIMITED)
def test_a_single_answer_keeps_what_came_until_then(daemon: RunningDaemon, path: str) -> None:
    more = {"max_tokens": 100_000} if path == "/v1/messages" else {}
    response = daemon.http.post(path, json={"model": "short", **LIMITED[path], **more})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert any(is_said(text) for text in texts_in(answer))
    if path.startswith("/v1/c"):
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["ended_by"] == WHY
        assert answer["usage"]["prompt_tokens"] > 0
    elif path == "/v1/messages":
        assert answer["stop_reason"] == "max_tokens"
    elif path == "/completion":
        assert (answer["stop_type"], answer["ended_by"]) == ("limit", WHY)


def test_no_choice_is_ended_that_an_engine_does_not_make(daemon: RunningDaemon) -> None:
    asked = {"model": "short", **LIMITED["/v1/chat/completions"], "stream": True, "n": 1000, "n_cmpl": 1}
    said = events(daemon.http.post("/v1/chat/completions", json=asked).text)
    ended = [one["choices"][0]["index"] for one in said if one["choices"][0]["finish_reason"] == "length"]
    assert ended == [0]


LASTS = {"/v1/messages": "message_stop", "/v1/responses": "response.completed"}


@pytest.mark.parametrize("path", LIMITED)
def test_a_stream_of_any_api_has_its_proper_end(daemon: RunningDaemon, path: str) -> None:
    more = {"max_tokens": 100_000} if path == "/v1/messages" else {}
    text = daemon.http.post(path, json={"model": "short", **LIMITED[path], **more, "stream": True}).text
    assert f": {WHY}\n\n" in text
    last = events(text)[-1]
    assert "error" not in last
    if path in LASTS:
        assert last["type"] == LASTS[path]
    else:
        assert last.get("stop_type") == "limit" or text.endswith("data: [DONE]\n\n")


def test_an_answer_in_one_piece_that_takes_too_long_is_an_error(daemon: RunningDaemon) -> None:
    asked = {"model": "short", **LIMITED["/v1/chat/completions"], "logprobs": True, "top_logprobs": 1}
    refused = daemon.http.post("/v1/chat/completions", json=asked)
    assert refused.status_code == 504
    assert refused.json()["error"]["code"] == "time_limit"
    assert refused.json()["error"]["message"].startswith(WHY)


def test_upstream_has_no_limit(daemon: RunningDaemon) -> None:
    asked = {**LIMITED["/v1/chat/completions"], "stream": True, "max_tokens": 1000}
    text = daemon.http.post("/upstream/short/v1/chat/completions", json=asked).text
    assert events(text)[-1]["choices"][0]["finish_reason"] == "length"
    assert "max_seconds" not in text


def test_an_answer_in_time_is_not_touched(daemon: RunningDaemon) -> None:
    asked = {"model": "short", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    answer = daemon.http.post("/v1/chat/completions", json=asked).json()
    assert "ended_by" not in answer
    assert answer["usage"]["completion_tokens"] == 2
