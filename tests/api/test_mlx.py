"""Models for MLX behind a daemon: planned, loaded, asked by every API, left, killed and unloaded as all others are."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.hub.server import local_hub
from tests.support.mlx import require_mlx
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.support.scripted_mlx import write_scripted_mlx

HELLO = "Hello from MLX."
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}\n</tool_call>'
XML = "<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
WHEN = {"think": "<think>\nhm\n</think>\n\nyes", "call": CALL, "broken": BROKEN, "xml": XML}
WEATHER = {"name": "weather", "arguments": '{"city": "Paris"}'}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, scripted_model: ScriptedModel) -> Path:
    """Models in folders: `talker`, `endless`, and `plain`, whose template has no place for tools."""
    root = tmp_path_factory.mktemp("mlx")
    write_scripted_mlx(root / "talker", scripted_model(HELLO, when=WHEN))
    write_scripted_mlx(root / "endless", scripted_model("and on it goes, ", endless=True, n_ctx=1 << 18), blocks=8)
    write_scripted_mlx(root / "new", scripted_model("new"))
    plain = write_scripted_mlx(root / "gemma", scripted_model(HELLO, when=WHEN, tools=CALL))
    _set_template(plain, GEMMA)
    strict = write_scripted_mlx(root / "strict", scripted_model(HELLO, when=WHEN, tools=CALL))
    _set_template(strict, "{%- if tools %}{{ tools | tojson }}{% endif %}" + GEMMA)
    return root


GEMMA = (
    "{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{%- for message in messages %}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}"
    "{%- if 'call' in messages[-1]['content'].split() %}{{- '<|say:word:call|>' }}"
    "{%- else %}{{- '<|say:default|>' }}{% endif %}{% endif %}"
)
"""As Gemma 2's: no tools, no system message, and roles that take turns."""


def _set_template(folder: Path, template: str) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, folders: Path, scripted_model: ScriptedModel) -> Iterator[RunningDaemon]:
    """One with these, and with `gguf`, a model in GGUF with the template of `gemma`."""
    names = ("talker", "endless", "gemma")
    models: Json = {name: {"file": str(folders / name), "parallel": 2} for name in names}
    models["strict"] = {**models["talker"], "file": str(folders / "strict")}
    models["gguf"] = {"file": str(scripted_model(HELLO, when=WHEN, tools=CALL)), "chat_template": GEMMA}
    env = {"SUPERVISOR_MLX_PYTHON": str(require_mlx())}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}, env=env) as running:
        yield running


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def test_a_chat_loads_it(daemon: RunningDaemon) -> None:
    assert text_of(daemon.chat("talker", "Hi")) == HELLO
    found = daemon.model("talker")
    assert (found["state"], found["slots"]) == ("ready", 2) if "slots" in found else found["state"] == "ready"
    thinking = daemon.chat("talker", "think").json()["choices"][0]["message"]
    assert (thinking["reasoning_content"], thinking["content"]) == ("hm", "yes")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("word", ["call", "broken", "xml"])
def test_calls_are_recovered_broken_ones_too(daemon: RunningDaemon, word: str, stream: bool) -> None:
    body = {"model": "talker", "messages": [{"role": "user", "content": word}], "tools": TOOLS, "stream": stream}
    answer = daemon.http.post("/v1/chat/completions", json=body, timeout=PATIENCE)
    if stream:
        lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n")]
        chunks = [json.loads(line) for line in lines if line.startswith("{")]
        deltas = [one["choices"][0]["delta"] for one in chunks if one["choices"]]
        pieces = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
        found = "".join(one.get("name") or "" for one in pieces), "".join(one.get("arguments", "") for one in pieces)
    else:
        (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
        found = call["function"]["name"], call["function"]["arguments"]
    assert (found[0], json.loads(found[1])) == ("weather", {"city": "Paris"})


def test_every_api_that_is_a_chat_has_it(daemon: RunningDaemon) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    said = daemon.http.post("/v1/messages", json={"model": "talker", "max_tokens": 99, "messages": messages}).json()
    assert said["content"] == [{"type": "text", "text": HELLO}]
    response = daemon.http.post("/v1/responses", json={"model": "talker", "input": "Hi"}).json()
    assert response["output"][-1]["content"][0]["text"] == HELLO
    ollama = daemon.http.post("/api/chat", json={"model": "talker", "messages": messages, "stream": False}).json()
    assert ollama["message"]["content"] == HELLO
    plain = daemon.http.post("/v1/completions", json={"model": "talker", "prompt": "x", "max_tokens": 2}).json()
    assert HELLO.startswith(plain["choices"][0]["text"])
    streamed = daemon.http.post(
        "/v1/responses", json={"model": "talker", "input": "Hi", "stream": True}, timeout=PATIENCE
    ).text
    assert "event: response.completed" in streamed
    tokens = daemon.http.post("/tokenize", json={"model": "talker", "content": "abc"}).json()["tokens"]
    assert len(tokens) == 3


def test_raw_tool_calls_and_history(daemon: RunningDaemon) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        {"role": "user", "content": "call"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        {"role": "user", "content": "Hi"},
    ]
    for mode in ("auto", "raw", "off"):
        body = {"model": "talker", "messages": messages, "tools": TOOLS, "tool_call_mode": mode}
        assert text_of(daemon.http.post("/v1/chat/completions", json=body, timeout=PATIENCE)) == HELLO


@pytest.mark.parametrize("path", ["/v1/embeddings", "/infill", "/v1/rerank", "/lora-adapters"])
def test_what_its_engine_does_not_answer_is_refused_by_name(daemon: RunningDaemon, path: str) -> None:
    answer = daemon.http.post(path, json={"model": "talker", "input": "x"})
    assert answer.status_code in {400, 501}
    assert answer.json()["error"]["code"] == "not_supported_by_engine"


@pytest.mark.parametrize(
    "more",
    [{"response_format": {"type": "json_object"}}, {"grammar": 'root ::= "a"'}, {"tool_choice": "required"}, {"n": 2}],
)
def test_what_cannot_be_had_is_refused_by_name(daemon: RunningDaemon, more: Json) -> None:
    body = {"model": "talker", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, **more}
    answer = daemon.http.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (501, "not_supported_by_engine")
    assert next(iter(more)) in error["message"]


def test_a_prompt_beyond_the_context_is_told_in_the_one_form(daemon: RunningDaemon, folders: Path) -> None:
    body = {"target": str(folders / "new"), "options": {"ctx_size": 512}}
    assert daemon.http.post("/api/v1/models/load", json=body, timeout=PATIENCE).status_code == 200
    answer = daemon.chat("new", "x" * 2000)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded"), error


def test_a_plan_says_what_it_will_hold(daemon: RunningDaemon, folders: Path) -> None:
    plan = daemon.http.post("/api/v1/plan", json={"target": "talker", "options": {"ctx_size": 4096}}).json()
    estimate = daemon.http.post(
        "/api/v1/estimate", json={"target": "talker", "options": {"ctx_size": 4096, "parallel": 2}}
    )
    assert plan["fits"], plan
    assert plan["ctx_size"] == 4096
    assert plan["parts"] == [{"name": "CPU", "total_bytes": estimate.json()["total_bytes"]}]
    assert "weights" in plan["why"][0]
    assert "--context" in plan["arguments"]


@pytest.mark.parametrize("option", [{"n_gpu_layers": 3}, {"cache_type_k": "q5_0"}, {"cache_ram": -1}])
def test_options_that_mean_nothing_are_refused(daemon: RunningDaemon, folders: Path, option: Json) -> None:
    target = str(folders / "talker")
    for path, body in (("plan", {"target": target}), ("models/load", {"target": target, "id": "other"})):
        answer = daemon.http.post(f"/api/v1/{path}", json={**body, "options": option})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(option))), answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_the_slot(daemon: RunningDaemon, stream: bool) -> None:
    daemon.load("endless")
    body = {"model": "endless", "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
    if stream:
        with daemon.http.stream("POST", "/v1/chat/completions", json=body, timeout=PATIENCE) as answer:
            assert any("content" in line for line in answer.iter_lines())
    else:
        daemon.leave("/v1/chat/completions", body, lambda: _busy(daemon) == 1)
    wait_until(lambda: _busy(daemon) == 0, "the slot is free")


def test_a_request_is_cancelled_by_its_id(daemon: RunningDaemon) -> None:
    body = {"model": "endless", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    with daemon.http.stream("POST", "/v1/chat/completions", json=body, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert any("content" in line for line in lines)
        assert daemon.http.delete(f"/api/v1/requests/{answer.headers['x-request-id']}").status_code < 300
        assert any("cancel" in line for line in lines)
    wait_until(lambda: _busy(daemon) == 0, "the slot is free")


def _busy(daemon: RunningDaemon) -> int:
    slots: list[Json] = daemon.http.get("/slots", params={"model": "endless"}).json()
    return sum(slot["is_processing"] for slot in slots)


def test_an_engine_that_is_killed_ends_its_stream_with_an_error_and_comes_back(daemon: RunningDaemon) -> None:
    daemon.load("endless")
    body = {"model": "endless", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    pid = daemon.model("endless")["pid"]
    with daemon.http.stream("POST", "/v1/chat/completions", json=body, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert any("content" in line for line in lines)
        os.kill(pid, signal.SIGKILL)
        assert any("engine_lost" in line for line in lines)
    limited = {**body, "stream": False, "max_tokens": 3}
    assert daemon.http.post("/v1/chat/completions", json=limited, timeout=PATIENCE).status_code == 200
    assert daemon.model("endless")["pid"] != pid


def test_it_is_unloaded_and_leaves_nothing(daemon: RunningDaemon, folders: Path) -> None:
    daemon.load("talker")
    process = psutil.Process(daemon.model("talker")["pid"])
    argv = process.cmdline()
    socket = Path(argv[argv.index("--socket") + 1])
    assert socket.exists()
    daemon.http.post("/api/v1/models/unload", json={"model": "talker"}, timeout=PATIENCE).raise_for_status()
    assert not process.is_running()
    assert not socket.exists()


def test_tools_and_roles_are_emulated_where_the_template_has_no_place_for_them(daemon: RunningDaemon) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "please call"},
    ]
    body: Json = {"model": "gemma", "messages": messages, "tools": TOOLS}
    answer = daemon.http.post("/v1/chat/completions", json=body, timeout=PATIENCE)
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("weather", {"city": "Paris"})


TURNS = [
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "One."}, {"role": "user", "content": "Hi"}],
    [{"role": "assistant", "content": "Welcome."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": WEATHER}]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        {"role": "user", "content": "Hi"},
    ],
]


@pytest.mark.parametrize("turns", TURNS, ids=["system", "neighbours", "assistant first", "tools"])
@pytest.mark.parametrize("model", ["gemma", "gguf"])
def test_turns_are_made_such_as_the_template_demands_tools_or_not(
    daemon: RunningDaemon, model: str, turns: list[Json]
) -> None:
    asked = {"model": model, "messages": turns}
    assert text_of(daemon.http.post("/v1/chat/completions", json=asked, timeout=PATIENCE)) == HELLO
    if turns is not TURNS[-1]:
        ollama = daemon.http.post("/api/chat", json={**asked, "stream": False}, timeout=PATIENCE)
        assert ollama.json()["message"]["content"] == HELLO
    if all(one["role"] in {"user", "assistant"} and one["content"] for one in turns):
        said = daemon.http.post("/v1/messages", json={**asked, "max_tokens": 99}, timeout=PATIENCE).json()
        assert said["content"] == [{"type": "text", "text": HELLO}]
        found = daemon.http.post("/v1/responses", json={"model": model, "input": turns}, timeout=PATIENCE).json()
        assert found["output"][-1]["content"][0]["text"] == HELLO


@pytest.mark.parametrize("turns", TURNS[:3], ids=["system", "neighbours", "assistant first"])
def test_turns_are_so_too_where_a_template_knows_tools(daemon: RunningDaemon, turns: list[Json]) -> None:
    for stream in (False, True):
        asked = {"model": "strict", "messages": turns, "tools": TOOLS, "stream": stream}
        answer = daemon.http.post("/v1/chat/completions", json=asked, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        assert '"error"' not in answer.text


def test_a_load_that_cannot_succeed_says_why(daemon: RunningDaemon, folders: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in (folders / "talker").iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "tokenizer.json").write_text("{}")
    answer = daemon.http.post("/api/v1/models/load", json={"target": str(broken)}, timeout=PATIENCE)
    assert answer.status_code >= 400
    assert answer.json()["error"]["code"] in {"engine_start_failed", "model_load_failed"}, answer.text
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "model_file": "own.py"}))
    refused = daemon.http.post("/api/v1/models/load", json={"target": str(broken), "id": "own"}, timeout=PATIENCE)
    assert refused.json()["error"]["code"] == "model_config_invalid", refused.text


def test_without_mlx_lm_a_load_says_how_to_get_it(engine_binary: Path, folders: Path) -> None:
    env = {"SUPERVISOR_ENGINES": str(folders / "none"), "SUPERVISOR_MLX_PYTHON": ""}
    models = {"talker": {"source": str(folders / "talker")}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}, env=env) as running:
        answer = running.chat("talker", "Hi")
        assert answer.json()["error"]["code"] == "engine_not_found"
        assert "engine install mlx" in answer.json()["error"]["message"]


def test_models_of_a_hub(engine_binary: Path, folders: Path, demo_model: Path) -> None:
    """Of both formats GGUF is taken, unless the other one is named; a repository without GGUF needs no name."""
    files: dict[str, bytes | Path] = {path.name: path.read_bytes() for path in (folders / "talker").iterdir()}
    with scratch_home() as home, local_hub() as hub:
        hub.add("owner/mine", files)
        hub.add("owner/both", {**files, "both-Q8_0.gguf": demo_model})
        env = {**hub.environment(home / "hf"), "SUPERVISOR_MLX_PYTHON": str(require_mlx())}
        models = {"told": {"source": "owner/both:mlx"}, "wrong": {"source": "owner/mine"}}
        with running_daemon(home, engine_binary, {"models": models}, env=env) as running:
            plan = running.http.post("/api/v1/plan", json={"target": "owner/mine"}, timeout=PATIENCE).json()
            assert (plan["fits"], plan["ctx_size"]) == (True, 32768)
            assert text_of(running.chat("told", "Hi")) == HELLO
            assert running.load("owner/mine")["hub"] == "owner/mine:MLX"
            assert text_of(running.chat("owner/mine", "Hi")) == HELLO
            assert running.load("owner/both")["hub"] == "owner/both:Q8_0"
            refused = running.chat("wrong", "Hi").json()["error"]
            assert (refused["code"], "owner/mine:mlx" in refused["message"]) == ("not_supported_by_engine", True)
