"""Clients of Ollama's API against the daemon: the official ones, LangChain, and the requests that two programs send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM

from tests.api.conftest import HELLO, REASONED
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.node_packages import node_told

pytestmark = pytest.mark.engine

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS}
DIRECT = {"trust_env": False}
TOOL: dict[str, Any] = {"type": "function", "function": WEATHER}


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    models = {"talker": {"file": str(talker), "parallel": 4, "ctx_size": 65536}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        running.load("talker")
        yield running


@pytest.fixture
def client(daemon: RunningDaemon) -> Iterator[ollama.Client]:
    with ollama.Client(host=daemon.url, trust_env=False) as found:
        yield found


def said(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


# -- Ollama's own client for Python


def test_python_chats(client: ollama.Client) -> None:
    whole = client.chat("talker", said("hi"))
    assert (whole.message.content, whole.done_reason, whole.eval_count) == (HELLO, "stop", 13)
    pieces = list(client.chat("talker", said("hi"), stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == HELLO
    assert (pieces[-1].done, pieces[-1].eval_count) == (True, 13)
    assert all(piece.model == "talker" and piece.created_at for piece in pieces)


def test_python_calls_tools_with_an_object_of_arguments(client: ollama.Client) -> None:
    first = client.chat("talker", said("call"), tools=[TOOL])
    assert first.message.tool_calls is not None
    assert dict(first.message.tool_calls[0].function.arguments) == {"city": "Paris"}
    result = ollama.Message(role="tool", content="sunny", tool_name="get_weather")
    second = client.chat("talker", [*said("call"), first.message, result, *said("hi")], tools=[TOOL])
    assert second.message.content == HELLO


def test_python_thinks_apart(client: ollama.Client) -> None:
    told = client.chat("talker", said("think"), think=True)
    assert (told.message.thinking or "").strip() == "Let me ponder."
    assert told.message.content == REASONED


def test_python_generates_and_embeds(client: ollama.Client) -> None:
    assert client.generate("talker", "hi", options={"num_predict": 2}).response == HELLO[:8]
    pieces = client.generate("talker", "hi", raw=True, stream=True)
    assert "".join(piece.response or "" for piece in pieces) == HELLO
    assert len(client.embed("talker", ["one", "two"]).embeddings) == 2
    assert client.embeddings("talker", "one").embedding


def test_python_lists_and_shows(client: ollama.Client) -> None:
    found = {model.model: model for model in client.list().models}
    assert found["talker:latest"].modified_at is not None
    assert [model.model for model in client.ps().models] == ["talker:latest"]
    assert (client.show("talker").modelinfo or {})["general.architecture"] == "llama"
    assert client.pull("talker").status == "success"
    assert [one.status for one in client.pull("talker", stream=True)] == ["success"]
    assert client.copy("talker", "bird").status == "success"


def test_python_hears_of_errors(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="not found") as missing:
        client.chat("nobody", said("hi"))
    assert missing.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="not found"):
        list(client.generate("nobody", "hi", stream=True))
    with pytest.raises(ollama.ResponseError, match="not done here"):
        client.push("talker")


# -- Ollama's own client for Node


def test_node_gets_what_it_expects(daemon: RunningDaemon) -> None:
    told = node_told("ollama.mjs", daemon.url)
    assert told["chat"]["message"]["content"] == HELLO
    assert "".join(line["message"]["content"] for line in told["streamed"]) == HELLO
    assert told["streamed"][-1]["done"]
    assert told["thought"]["message"]["thinking"].strip() == "Let me ponder."
    calls = [told["call"]["message"]["tool_calls"], *[line["message"].get("tool_calls") for line in told["called"]]]
    assert [call[0]["function"]["arguments"] for call in calls if call] == [{"city": "Paris"}] * 2
    assert told["generated"]["response"] == HELLO[:12]
    assert "".join(line["response"] for line in told["raw"]) == HELLO[:12]
    assert (len(told["embedded"]["embeddings"]), bool(told["embedding"]["embedding"])) == (2, True)
    assert "talker:latest" in [model["name"] for model in told["list"]["models"]]
    assert told["show"]["model_info"]["general.architecture"] == "llama"
    assert (told["pulled"]["status"], [line["status"] for line in told["pulling"]]) == ("success", ["success"])
    assert (told["copied"]["status"], "version" in told["version"]) == ("success", True)
    assert (told["unknown"]["status"], "not found" in told["unknown"]["message"]) == (404, True)
    assert told["pushed"]["message"].startswith("POST /api/push is not done here")
    assert "no model of a hub" in told["deleted"]["message"]
    assert told["aborted"]["name"] == "AbortError"
    assert told["aborted"]["lines"] >= 3
    wait_until(lambda: daemon.busy_slots("talker") == 0, "the slot of the aborted answer is free")


# -- LangChain


def ending(client: ollama.Client | None) -> closing[ollama.Client]:
    """Close what LangChain leaves open."""
    assert client is not None
    return closing(client)


def test_langchain_chats_with_tools(daemon: RunningDaemon) -> None:
    model = ChatOllama(model="talker", base_url=daemon.url, validate_model_on_init=True, client_kwargs=DIRECT)
    with ending(model._client):
        assert model.invoke("hi").content == HELLO
        assert "".join(str(piece.content) for piece in model.stream("hi")) == HELLO
        asking = model.bind_tools([TOOL])
        first = asking.invoke("call")
        assert isinstance(first, AIMessage)
        assert [call["args"] for call in first.tool_calls] == [{"city": "Paris"}]
        result = ToolMessage("sunny", tool_call_id=first.tool_calls[0]["id"])
        assert asking.invoke([HumanMessage("call"), first, result, HumanMessage("hi")]).content == HELLO
        usage = first.usage_metadata
        assert usage is not None
        assert usage["output_tokens"] > 0


def test_langchain_continues_and_embeds(daemon: RunningDaemon) -> None:
    texts = OllamaLLM(model="talker", base_url=daemon.url, client_kwargs=DIRECT)
    vectors = OllamaEmbeddings(model="talker", base_url=daemon.url, client_kwargs=DIRECT)
    with ending(texts._client), ending(vectors._client):
        assert texts.invoke("hi") == HELLO
        assert len(vectors.embed_documents(["one", "two"])) == 2


# -- what programs send, from their sources


def test_the_sequence_of_open_webui(daemon: RunningDaemon) -> None:
    """Its backend: version, tags, ps; a chat as a stream with options; a title without; unload."""
    http = daemon.http
    numbers = http.get("/api/version").json()["version"].split(".")
    assert all(number.isdigit() for number in numbers)
    model = next(one for one in http.get("/api/tags").json()["models"] if one["model"] == "talker:latest")
    assert model["name"] == model["model"]
    body = {
        "model": model["model"],
        "messages": said("hi"),
        "options": {"temperature": 0.7, "num_ctx": 2048, "stop": None},
        "stream": True,
        "keep_alive": None,
        "format": None,
    }
    with http.stream("POST", "/api/chat", content=json.dumps(body)) as answer:
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert "".join(line["message"]["content"] for line in lines) == HELLO
    assert isinstance(lines[-1]["prompt_eval_count"], int)
    title = http.post("/api/chat", json={**body, "stream": False, "options": {"num_predict": 3}}).json()
    assert title["message"]["content"] == HELLO[:12]
    running = http.get("/api/ps").json()["models"]
    assert {one["model"] for one in running} == {"talker:latest"}
    assert running[0]["expires_at"].endswith("Z")
    gone = http.post("/api/generate", json={"model": "talker:latest", "keep_alive": 0}).json()
    assert gone["done_reason"] == "unload"
    wait_until(lambda: http.get("/api/ps").json() == {"models": []}, "the model is unloaded")


def test_the_sequence_of_continue(daemon: RunningDaemon) -> None:
    """Its core: show first, by `name`; a chat with num_ctx and keep_alive; a completion of code, raw; embeddings."""
    http = daemon.http
    shown = http.post("/api/show", json={"name": "talker"}).json()
    assert "num_ctx" in shown["parameters"]
    assert ".Suffix" not in shown["template"], "the model cannot fill in"
    assert "talker:latest" in [one["name"] for one in http.get("/api/tags").json()["models"]]
    options = {"num_predict": 4096, "num_ctx": 8192, "mirostat": None, "num_thread": None, "use_mmap": None}
    body = {"model": "talker", "options": options, "keep_alive": 1800, "stream": True}
    lines = posted(http, "/api/chat", {**body, "messages": said("hi")})
    assert all(line["message"]["role"] == "assistant" for line in lines)
    pid = daemon.model("talker")["pid"]
    code = {**body, "prompt": "<|fim_prefix|>def a(<|fim_suffix|>):<|fim_middle|>", "raw": True}
    assert posted(http, "/api/generate", {**code, "options": {**options, "num_predict": 4}})[-1]["done"]
    assert daemon.model("talker")["pid"] == pid, "its context is no larger"
    assert daemon.model("talker")["expires_at"] is not None
    vectors = http.post("/api/embed", json={"model": "talker", "input": ["a", "b"]}).json()["embeddings"]
    assert len(vectors) == 2
    called = posted(http, "/api/chat", {**body, "messages": said("call"), "tools": [TOOL]})
    calls = [call for line in called for call in line["message"].get("tool_calls", [])]
    assert calls[0]["function"]["arguments"] == {"city": "Paris"}


def posted(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with http.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        return [json.loads(line) for line in answer.iter_lines()]
