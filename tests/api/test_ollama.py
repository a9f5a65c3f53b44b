"""Ollama's API with a real engine: requests, streams, options, what is wished of models, lists, errors."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conftest import HELLO, REASONED
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.media_server import png

pytestmark = pytest.mark.engine

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
COUNTS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon with a model whose context may grow, and one that fills in middles and whose context is configured."""
    fim = ",".join(f"tokenizer.ggml.fim_{mark}_token_id=int:1" for mark in ("pre", "suf", "mid"))
    models = {
        "talker": {"file": str(talker), "parallel": 2, "aliases": ["parrot"]},
        "filler": {"file": str(talker), "parallel": 2, "ctx_size": 8192, "extra_args": ["--override-kv", fim]},
        "cool": {"file": str(talker), "ctx_size": 4096, "sampling": {"top_p": 0.5}},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        running.load("talker", ctx_size=8192)
        yield running


def asked(daemon: RunningDaemon, path: str, **body: Any) -> httpx.Response:
    return daemon.http.post(f"/api/{path}", json={"model": "talker", **body})


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    """The objects of a stream, one in each line."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.text.endswith("\n")
    return [json.loads(line) for line in answer.text.splitlines()]


def one(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    return found


def said(content: str, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content, **more}]


def loaded(daemon: RunningDaemon, model: str) -> bool:
    return bool(daemon.model(model)["state"] == "ready")


def test_a_chat_is_a_stream_of_lines_unless_it_says_otherwise(daemon: RunningDaemon) -> None:
    *pieces, last = lines(asked(daemon, "chat", messages=said("hi")))
    whole = one(asked(daemon, "chat", messages=said("hi"), stream=False))
    assert "".join(piece["message"]["content"] for piece in pieces) == HELLO == whole["message"]["content"]
    assert all(not piece["done"] and piece["message"]["role"] == "assistant" for piece in pieces)
    assert (last["done"], last["done_reason"], last["message"]["content"]) == (True, "stop", "")
    for end in (last, whole):
        assert end["eval_count"] == 13
        assert end["prompt_eval_count"] == 22, "what was in the cache counts, too"
        assert all(isinstance(end[name], int) for name in COUNTS)
        assert end["total_duration"] > end["eval_duration"], "of the same unit"


def test_durations_are_nanoseconds(daemon: RunningDaemon) -> None:
    told = one(asked(daemon, "chat", messages=said("hi"), stream=False))
    history = daemon.http.get("/api/v1/history").json()["requests"][0]
    assert told["eval_duration"] == int(history["predicted_ms"] * 1e6)
    assert told["prompt_eval_duration"] == int(history["prompt_ms"] * 1e6)


def test_thoughts_are_told_apart(daemon: RunningDaemon) -> None:
    pieces = [piece["message"] for piece in lines(asked(daemon, "chat", messages=said("think"), think=True))]
    assert "".join(piece.get("thinking", "") for piece in pieces) == "Let me ponder.\n"
    assert "".join(piece["content"] for piece in pieces) == REASONED
    whole = one(asked(daemon, "generate", prompt="think", think="high", stream=False))
    assert (whole["thinking"].strip(), whole["response"]) == ("Let me ponder.", REASONED)


@pytest.mark.parametrize("think", [5, "much", []])
def test_another_way_to_think_is_refused(daemon: RunningDaemon, think: object) -> None:
    refused = asked(daemon, "chat", messages=said("hi"), think=think)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert "think" in refused.json()["error"]


@pytest.mark.parametrize("stream", [True, False])
def test_calls_come_whole_with_an_object(daemon: RunningDaemon, stream: bool) -> None:
    answer = asked(daemon, "chat", messages=said("call"), tools=TOOLS, stream=stream)
    told = lines(answer) if stream else [one(answer)]
    calls = [call for piece in told for call in piece["message"].get("tool_calls", [])]
    assert [call["function"] for call in calls] == [{"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}]
    assert told[-1]["done_reason"] == "stop"


def test_calls_and_results_of_earlier_turns_reach_the_model(daemon: RunningDaemon) -> None:
    calls = [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]
    history = [
        *said("what about Paris"),
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": calls},
        {"role": "tool", "content": "sunny", "tool_name": "get_weather"},
    ]
    assert one(asked(daemon, "chat", messages=history, tools=TOOLS, stream=False))["message"]["content"] == HELLO


def test_a_text_is_generated_from_a_prompt(daemon: RunningDaemon) -> None:
    *pieces, last = lines(asked(daemon, "generate", prompt="hi", system="Be kind."))
    assert "".join(piece["response"] for piece in pieces) == HELLO
    assert (last["response"], last["done"]) == ("", True)
    assert "message" not in last


@pytest.mark.parametrize("stream", [True, False])
def test_a_raw_prompt_goes_to_the_engine_as_it_is(daemon: RunningDaemon, stream: bool) -> None:
    answer = asked(daemon, "generate", prompt="hi", raw=True, stream=stream, options={"num_predict": 3})
    told = lines(answer) if stream else [one(answer)]
    assert "".join(piece["response"] for piece in told) == HELLO[:12]
    assert (told[-1]["done_reason"], told[-1]["eval_count"]) == ("length", 3)
    assert told[-1]["prompt_eval_count"] < 10, "no template was put around it"


@pytest.mark.parametrize("stream", [True, False])
def test_a_suffix_fills_in_the_middle(daemon: RunningDaemon, stream: bool) -> None:
    body = {"model": "filler", "prompt": "def a(", "suffix": "):", "options": {"num_predict": 2}}
    answer = daemon.http.post("/api/generate", json={**body, "stream": stream})
    told = lines(answer) if stream else [one(answer)]
    assert told[-1]["eval_count"] == 2


def test_what_cannot_be_mapped_is_refused_by_name(daemon: RunningDaemon) -> None:
    for name, value in {"template": "{{ .Prompt }}", "context": [1, 2]}.items():
        refused = asked(daemon, "generate", prompt="hi", **{name: value})
        assert refused.status_code == 400
        assert f"`{name}`" in refused.json()["error"]


def test_options_reach_the_engine_under_its_names(daemon: RunningDaemon) -> None:
    options = {
        "num_predict": 5,
        "temperature": 0,
        "stop": ["from"],
        "seed": 7,
        "mirostat": None,
        "num_gpu": 99,
        "no_such_option": {},
    }
    told = one(asked(daemon, "chat", messages=said("hi"), stream=False, options=options))
    assert told["message"]["content"] == "Hello "
    cut = one(asked(daemon, "chat", messages=said("hi"), stream=False, options={"num_predict": 2}))
    assert (cut["message"]["content"], cut["done_reason"], cut["eval_count"]) == (HELLO[:8], "length", 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", "hot"), ("num_predict", 1.5), ("stop", 3), ("num_ctx", "8k"), ("use_mmap", 1), ("top_k", -5)],
)
def test_an_option_of_a_wrong_type_is_named(daemon: RunningDaemon, name: str, value: object) -> None:
    refused = asked(daemon, "chat", messages=said("hi"), options={name: value})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert f"`options.{name}`" in refused.json()["error"]


def settings_of(daemon: RunningDaemon, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """The sampling of the last answer, as the engine tells it of its slots."""
    body = {"model": model, "messages": said("hi"), "stream": False, "options": options}
    one(daemon.http.post("/api/chat", json=body))
    found: dict[str, Any] = next(slot["params"] for slot in daemon.slots(model) if "params" in slot)
    return found


def test_defaults_are_those_of_ollama_unless_the_model_has_others(daemon: RunningDaemon) -> None:
    daemon.load("cool")
    assert settings_of(daemon, "cool", {})["top_p"] == pytest.approx(0.5)
    assert settings_of(daemon, "cool", {})["min_p"] == 0.0
    assert settings_of(daemon, "cool", {"min_p": 0.25})["min_p"] == pytest.approx(0.25)


def test_an_answer_has_the_form_that_is_asked_for(daemon: RunningDaemon) -> None:
    schema = {"type": "object", "properties": {"city": {"const": "Rome"}}, "required": ["city"]}
    body = {"messages": said("hi"), "stream": False, "options": {"num_predict": 200}}
    told = one(asked(daemon, "chat", format=schema, **body))["message"]["content"]
    assert json.loads(told) == {"city": "Rome"}
    assert one(asked(daemon, "chat", format="json", **body))["message"]["content"].startswith("{")
    assert one(asked(daemon, "chat", format="", **body))["message"]["content"] == HELLO
    refused = asked(daemon, "chat", format="xml", **body)
    assert (refused.status_code, "`format`" in refused.json()["error"]) == (400, True)


@pytest.mark.parametrize("stream", [True, False])
def test_probabilities_are_told(daemon: RunningDaemon, stream: bool) -> None:
    body = {"logprobs": True, "top_logprobs": 2, "stream": stream, "options": {"num_predict": 1}}
    questions: dict[str, dict[str, Any]] = {
        "chat": {"messages": said("hi")},
        "generate": {"prompt": "hi", "raw": True},
    }
    for path, question in questions.items():
        answer = asked(daemon, path, **question, **body)
        told = [found for piece in (lines(answer) if stream else [one(answer)]) for found in piece.get("logprobs", [])]
        assert told[0]["token"] == "Hell"
        assert told[0]["bytes"] == list(b"Hell")
        assert len(told[0]["top_logprobs"]) == 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_long_conversation_loses_its_oldest_messages(daemon: RunningDaemon, stream: bool) -> None:
    turns = [
        {"role": role, "content": f"{number} " + "long " * 300} for number in range(9) for role in ("user", "assistant")
    ]
    messages = [{"role": "system", "content": "Be kind."}, *turns, *said("hi")]
    body = {"model": "filler", "messages": messages, "stream": stream}
    answer = daemon.http.post("/api/chat", json=body)
    *_, last = told = lines(answer) if stream else [one(answer)]
    assert "".join(piece["message"]["content"] for piece in told) == HELLO
    assert 2000 < last["prompt_eval_count"] < 4096, "as much as fits"
    refused = daemon.http.post("/api/chat", json={**body, "truncate": False})
    assert (refused.status_code, refused.json()["code"]) == (400, "context_length_exceeded")
    alone = daemon.http.post("/api/chat", json={**body, "messages": said("long " * 4000)})
    assert (alone.status_code, alone.json()["code"]) == (400, "context_length_exceeded"), "the last one stays"


def test_vectors_have_length_one_and_may_be_cut(daemon: RunningDaemon) -> None:
    whole = one(asked(daemon, "embed", input=["one", "two"]))
    assert (len(whole["embeddings"]), whole["prompt_eval_count"] > 0) == (2, True)
    cut = one(asked(daemon, "embed", input="one", dimensions=4))["embeddings"][0]
    for vector in (*whole["embeddings"], cut):
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)
    scale = math.hypot(*whole["embeddings"][0][:4])
    assert cut == pytest.approx([value / scale for value in whole["embeddings"][0][:4]])
    plain = one(asked(daemon, "embeddings", prompt="one"))["embedding"]
    assert math.hypot(*plain) != pytest.approx(1, abs=0.1)
    length = math.hypot(*plain)
    assert [value / length for value in plain] == pytest.approx(whole["embeddings"][0], abs=1e-6)


def test_a_large_image_goes_through(daemon: RunningDaemon) -> None:
    """The model sees nothing, so the engine says so: the image was a part of the conversation."""
    image = base64.b64encode(png() + bytes(1 << 20)).decode()
    for path, body in (
        ("chat", {"messages": said("hi", images=[image])}),
        ("generate", {"prompt": "hi", "images": [image]}),
    ):
        refused = asked(daemon, path, **body)
        assert refused.status_code >= 400
        assert "image" in refused.json()["error"]
    refused = asked(daemon, "chat", messages=said("hi", images=[7]))
    assert (refused.status_code, "`images`" in refused.json()["error"]) == (400, True)


def test_a_request_without_a_question_loads_and_unloads(daemon: RunningDaemon) -> None:
    for path in ("chat", "generate"):
        told = one(daemon.http.post(f"/api/{path}", json={"model": "cool"}))
        assert (told["done"], told["done_reason"]) == (True, "load")
        assert loaded(daemon, "cool")
        gone = one(daemon.http.post(f"/api/{path}", json={"model": "cool:latest", "keep_alive": 0}))
        assert (gone["done"], gone["done_reason"]) == (True, "unload")
        wait_until(lambda: daemon.model("cool")["state"] == "unloaded", "the model is unloaded")
    assert one(daemon.http.post("/api/embed", json={"model": "cool", "input": []}))["embeddings"] == []
    assert loaded(daemon, "cool")


def test_keep_alive_is_the_models_from_then_on(daemon: RunningDaemon) -> None:
    def ends() -> float | None:
        expires: float | None = daemon.model("talker")["expires_at"]
        return expires

    def told() -> str:
        running = {model["name"]: model for model in daemon.http.get("/api/ps").json()["models"]}
        expires: str = running["talker:latest"]["expires_at"]
        return expires

    one(asked(daemon, "chat", messages=said("hi"), stream=False, keep_alive="1h"))
    hour = told()
    assert ends() is not None
    one(asked(daemon, "chat", messages=said("hi"), stream=False))
    assert ends() is not None, "it stays the model's"
    one(asked(daemon, "chat", messages=said("hi"), stream=False, keep_alive=-1))
    assert ends() is None
    assert told() > hour
    refused = asked(daemon, "chat", messages=said("hi"), keep_alive="soon")
    assert (refused.status_code, "`keep_alive`" in refused.json()["error"]) == (400, True)


def test_nothing_to_keep_means_that_it_goes_after_the_request(daemon: RunningDaemon) -> None:
    body = {"model": "cool", "messages": said("hi"), "stream": False, "keep_alive": 0}
    assert one(daemon.http.post("/api/chat", json=body))["message"]["content"] == HELLO
    wait_until(lambda: daemon.model("cool")["state"] == "unloaded", "the model is unloaded")


def test_a_model_that_is_pinned_or_in_use_stays(daemon: RunningDaemon) -> None:
    pid = daemon.load("cool")["pid"]
    body = {"model": "cool", "messages": said("hi"), "stream": False, "keep_alive": 0}
    endless = {"model": "cool", "messages": said("endless")}
    with daemon.http.stream("POST", "/api/chat", json=endless) as beside:
        pieces = beside.iter_lines()
        next(pieces)
        one(daemon.http.post("/api/chat", json=body))
        assert not json.loads(next(pieces))["done"]
    wait_until(daemon.at_rest, "the stream is over")
    daemon.http.post("/api/v1/models/pin", json={"model": "cool"})
    one(daemon.http.post("/api/chat", json=body))
    assert daemon.model("cool")["pid"] == pid
    daemon.http.post("/api/v1/models/unpin", json={"model": "cool"})


def test_a_text_that_is_too_long_for_a_vector_is_refused(daemon: RunningDaemon) -> None:
    refused = daemon.http.post("/api/embed", json={"model": "filler", "input": "long " * 5000, "truncate": True})
    assert refused.status_code >= 400
    assert isinstance(refused.json()["error"], str)


def test_a_context_grows_and_never_shrinks(daemon: RunningDaemon) -> None:
    def context(wanted: int, model: str = "talker") -> tuple[int, int]:
        body = {"model": model, "messages": said("hi"), "stream": False, "options": {"num_ctx": wanted}}
        one(daemon.http.post("/api/chat", json=body))
        status = daemon.model(model)
        return status["n_ctx"], status["pid"]

    daemon.load("talker", ctx_size=8192)
    small, first = context(2048)
    assert small == 4096
    grown, second = context(8192)
    assert (grown, second != first) == (8192, True)
    assert context(4096) == (grown, second), "a client that wants less gets what there is"
    most, third = context(1 << 30)
    assert most <= 131072
    assert third == context(1 << 30)[1], "what cannot be is not tried again"
    configured = daemon.load("filler")
    assert context(100_000, "filler") == (4096, configured["pid"]), "never more than is configured"


@pytest.mark.parametrize("name", ["talker:latest", "TALKER:LATEST", "parrot:latest", "parrot"])
def test_models_are_found_by_their_names_there(daemon: RunningDaemon, name: str) -> None:
    body = {"model": name, "messages": said("hi"), "stream": False}
    told = one(daemon.http.post("/api/chat", json=body))
    assert (told["model"], told["message"]["content"]) == (name, HELLO)


def test_lists_name_models_with_a_tag(daemon: RunningDaemon) -> None:
    tags = {model["name"]: model for model in one(daemon.http.get("/api/tags"))["models"]}
    assert {"talker:latest", "filler:latest", "demo:latest"} <= set(tags)
    talker = tags["talker:latest"]
    assert talker["model"] == "talker:latest"
    assert len(talker["digest"]) == 64
    assert talker["details"]["format"] == "gguf"
    assert "completion" in talker["capabilities"]
    running = {model["name"]: model for model in one(daemon.http.get("/api/ps"))["models"]}
    assert running["talker:latest"]["context_length"] == daemon.model("talker")["n_ctx"]
    assert running["talker:latest"]["size"] > 0


@pytest.mark.parametrize("key", ["model", "name"])
def test_a_model_is_shown(daemon: RunningDaemon, key: str) -> None:
    told = one(daemon.http.post("/api/show", json={key: "talker:latest"}))
    assert told["model_info"]["general.architecture"] == "llama"
    assert told["model_info"]["llama.context_length"] == 131072
    assert "messages" in told["template"]
    assert told["parameters"].startswith("num_ctx ")
    assert set(told["capabilities"]) >= {"completion", "tools"}
    assert told["details"]["quantization_level"] == "F16"
    assert "tensors" not in told
    long = one(daemon.http.post("/api/show", json={key: "talker", "verbose": True}))
    assert len(long["tensors"]) > 3


def test_errors_have_the_form_of_ollama(daemon: RunningDaemon) -> None:
    missing = daemon.http.post("/api/chat", json={"model": "nobody", "messages": said("hi")})
    assert (missing.status_code, missing.json()["code"]) == (404, "model_not_found")
    assert "not found" in missing.json()["error"]
    assert missing.headers["content-type"] == "application/json"
    broken = daemon.http.post("/api/generate", content=b"{")
    assert (broken.status_code, broken.json()["code"]) == (400, "invalid_request")
    for answer in (daemon.http.get("/api/chat"), daemon.http.post("/api/tags"), daemon.http.post("/api/show", json={})):
        assert isinstance(answer.json()["error"], str)


def test_what_makes_and_publishes_models_is_refused_by_name(daemon: RunningDaemon) -> None:
    http = daemon.http
    answers = {
        "/api/create": http.post("/api/create", json={"model": "x", "from": "talker"}),
        "/api/push": http.post("/api/push", json={"model": "x"}),
        "/api/blobs/sha256:00": http.post("/api/blobs/sha256:00", content=b"x"),
    }
    for path, answer in answers.items():
        assert (answer.status_code, answer.json()["code"]) == (501, "not_supported")
        assert path in answer.json()["error"]
    assert http.head("/api/blobs/sha256:00").status_code == 501


def test_a_model_gets_one_more_name(daemon: RunningDaemon) -> None:
    assert daemon.http.post("/api/copy", json={"source": "talker", "destination": "bird:latest"}).status_code == 200
    assert one(asked(daemon, "chat", model="bird", messages=said("hi"), stream=False))["message"]["content"] == HELLO
    taken = daemon.http.post("/api/copy", json={"source": "talker", "destination": "cool"})
    assert taken.json()["code"] == "model_id_taken"


def test_files_of_others_are_neither_fetched_nor_removed(daemon: RunningDaemon, talker: Path) -> None:
    assert lines(daemon.http.post("/api/pull", json={"name": "talker"})) == [{"status": "success"}]
    refused = daemon.http.post("/api/pull", json={"model": "llama3.2"})
    assert (refused.status_code, "owner/repo" in refused.json()["error"]) == (400, True)
    assert daemon.http.request("DELETE", "/api/delete", json={"name": "talker"}).status_code == 404
    assert talker.exists()


def test_who_asks_at_the_door(daemon: RunningDaemon) -> None:
    clients = {"user-agent": "ollama/0.33.0 (amd64 linux) Go/go1.25"}
    assert daemon.http.get("/", headers=clients).text == "Ollama is running"
    assert daemon.http.head("/", headers=clients).status_code == 200
    browser = daemon.http.get("/", headers={"accept": "text/html"}, follow_redirects=False)
    assert (browser.status_code, browser.headers["location"]) == (303, "/ui")
    major, *_ = one(daemon.http.get("/api/version"))["version"].split(".")
    assert major.isdigit()


def test_an_engine_that_dies_ends_the_stream_with_an_error(daemon: RunningDaemon) -> None:
    body = {"model": "cool", "messages": said("endless")}
    with daemon.http.stream("POST", "/api/chat", json=body) as answer:
        pieces = answer.iter_lines()
        next(pieces)
        daemon.http.post("/api/v1/models/unload", json={"model": "cool", "now": True})
        *_, last = pieces
    assert json.loads(last)["code"] == "engine_lost"
    assert isinstance(json.loads(last)["error"], str)


def test_lm_studio_is_told_stats(daemon: RunningDaemon) -> None:
    body = {"model": "talker", "messages": said("hi"), "max_tokens": 3}
    whole = daemon.http.post("/api/v0/chat/completions", json=body).json()
    assert whole["choices"][0]["message"]["content"] == HELLO[:12]
    assert whole["stats"]["stop_reason"] == "maxPredictedTokensReached"
    assert whole["stats"]["tokens_per_second"] > 0
    streamed = daemon.http.post("/api/v0/chat/completions", json={**body, "stream": True, "ttl": 900}).text
    events = [json.loads(event[6:]) for event in streamed.split("\n\n") if event and event != "data: [DONE]"]
    assert [event["stats"]["stop_reason"] for event in events if "stats" in event] == ["maxPredictedTokensReached"]
    assert streamed.endswith("data: [DONE]\n\n")
    assert daemon.model("talker")["expires_at"] is not None
    text = daemon.http.post("/api/v0/completions", json={"model": "talker", "prompt": "hi", "max_tokens": 2}).json()
    assert (text["choices"][0]["text"], text["stats"]["generation_time"] >= 0) == (HELLO[:8], True)
    vectors = daemon.http.post("/api/v0/embeddings", json={"model": "talker", "input": "hi"}).json()
    assert vectors["data"][0]["embedding"]
    assert daemon.http.post("/api/v0/completions", json={"prompt": "hi", "ttl": "1h"}).status_code == 400


def test_lm_studio_lists_models(daemon: RunningDaemon) -> None:
    found = {model["id"]: model for model in daemon.http.get("/api/v0/models").json()["data"]}
    assert found["talker"]["state"] == "loaded"
    assert found["talker"]["loaded_context_length"] == daemon.model("talker")["n_ctx"]
    assert found["talker"]["type"] == "llm"
    assert daemon.http.get("/api/v0/models/talker").json() == found["talker"]
    assert daemon.http.get("/api/v0/models/nobody").status_code == 404
