"""The launcher by itself: what it answers, what it refuses, and when it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.core.mlx.memory import MlxSettings
from supervisor.engines.mlx.command import MlxLaunch
from tests.support.daemon import scratch_home, wait_until
from tests.support.mlx import require_mlx
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.support.scripted_mlx import write_scripted_mlx

HELLO = "Hello from a model for MLX, äöü and all."
THOUGHT, SAID = "Let me ponder.", "It is so."
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CONTEXT = 1024
Json = dict[str, Any]


@dataclass(frozen=True)
class Launched:
    """A launcher that runs; `lines`: what it has written."""

    process: subprocess.Popen[str]
    http: httpx.Client

    def chat(self, content: str = "Hi", **more: object) -> httpx.Response:
        return self.http.post("/v1/chat/completions", json={**asked(content), **more})

    def busy(self) -> int:
        return sum(slot["is_processing"] for slot in self.http.get("/slots").json())


def asked(content: str) -> Json:
    return {"messages": [{"role": "user", "content": content}], "temperature": 0}


@contextlib.contextmanager
def launched(launch: MlxLaunch, *, ready: bool = True) -> Iterator[Launched]:
    """Runs one until the block ends."""
    with scratch_home() as home:
        socket = str(home / "s")
        process = subprocess.Popen(
            launch.argv(require_mlx(), socket), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert '"loading"' in process.stdout.readline()
            if ready:
                line = process.stdout.readline()
                assert '"ready"' in line, process.stderr and process.stderr.read()
            with httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://e", timeout=PATIENCE) as http:
                yield Launched(process, http)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory, scripted_model: ScriptedModel) -> MlxLaunch:
    when = {"think": f"<think>\n{THOUGHT}\n</think>\n\n{SAID}", "weather": CALL}
    folder = write_scripted_mlx(tmp_path_factory.mktemp("mlx") / "talker", scripted_model(HELLO, when=when))
    return MlxLaunch(folder, "talker", MlxSettings(CONTEXT, 2, None, 256, 1 << 20), {})


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory, scripted_model: ScriptedModel) -> MlxLaunch:
    """Slow enough that a prompt of a thousand tokens takes a while."""
    scripted = scripted_model("and on it goes, ", endless=True)
    folder = write_scripted_mlx(tmp_path_factory.mktemp("mlx") / "endless", scripted, blocks=16)
    return MlxLaunch(folder, "endless", MlxSettings(1 << 16, 2, None, 64, 0), {})


@pytest.fixture(scope="module")
def engine(talker: MlxLaunch) -> Iterator[Launched]:
    with launched(talker) as found:
        yield found


@pytest.fixture(scope="module")
def busy(endless: MlxLaunch) -> Iterator[Launched]:
    with launched(endless) as found:
        yield found


def events(text: str) -> list[Json]:
    """The events of a stream; a chat's ends with [DONE]."""
    found = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert found.pop() == "[DONE]"
    return [json.loads(one) for one in found]


def test_an_answer_in_one_piece(engine: Launched) -> None:
    found = engine.chat().json()
    assert found["object"] == "chat.completion"
    assert found["choices"] == [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": HELLO}}
    ]
    usage = found["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert found["timings"]["predicted_n"] == usage["completion_tokens"] > 3


def test_a_stream(engine: Launched) -> None:
    more = {"stream": True, "return_progress": True, "stream_options": {"include_usage": True}}
    found = events(engine.chat("Hi again", **more).text)
    assert "".join(one["choices"][0]["delta"].get("content") or "" for one in found if one["choices"]) == HELLO
    assert [one["choices"][0]["finish_reason"] for one in found if one["choices"]][-1] == "stop"
    progress = [one["prompt_progress"] for one in found if "prompt_progress" in one]
    assert progress[-1]["processed"] == progress[-1]["total"] == found[-1]["usage"]["prompt_tokens"]
    assert all(one["object"] == "chat.completion.chunk" for one in found)


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_told_apart(engine: Launched, stream: bool) -> None:
    answer = engine.chat("think", stream=stream)
    if stream:
        deltas = [one["choices"][0]["delta"] for one in events(answer.text) if one["choices"]]
        found = {key: "".join(one.get(key) or "" for one in deltas) for key in ("reasoning_content", "content")}
    else:
        found = answer.json()["choices"][0]["message"]
    assert (found["reasoning_content"], found["content"]) == (THOUGHT, SAID)
    raw = engine.chat("think", reasoning_format="none").json()["choices"][0]["message"]
    assert raw["content"] == f"<think>\n{THOUGHT}\n</think>\n\n{SAID}"


def test_calls_come_as_the_model_writes_them(engine: Launched) -> None:
    assert engine.chat("weather").json()["choices"][0]["message"]["content"] == CALL


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_that_no_token_ends_with(engine: Launched, stream: bool) -> None:
    answer = engine.chat(stop=["odel for", "never"], stream=stream)
    if stream:
        said = "".join(one["choices"][0]["delta"].get("content", "") for one in events(answer.text))
    else:
        said = answer.json()["choices"][0]["message"]["content"]
    assert said == HELLO[: HELLO.index("odel for")]
    wait_until(lambda: engine.busy() == 0, "nobody writes on")


def test_completions_raw_and_not(engine: Launched) -> None:
    found = engine.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, "temperature": 0}).json()
    assert found["choices"][0]["finish_reason"] == "length"
    assert HELLO.startswith(found["choices"][0]["text"])
    raw = engine.http.post("/completion", json={"prompt": [1, 2, 3], "temperature": 0, "stop": "MLX"}).json()
    assert (raw["content"], raw["stop_type"], raw["stopping_word"]) == (HELLO[: HELLO.index("MLX")], "word", "MLX")
    lines = engine.http.post("/completion", json={"prompt": "x", "n_predict": 1, "stream": True}).text
    last = json.loads(lines.strip().rpartition("data: ")[2])
    assert (last["stop"], last["stop_type"], last["tokens_predicted"]) == (True, "limit", 1)
    nothing = engine.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 0}).json()
    assert (nothing["choices"][0]["text"], nothing["choices"][0]["finish_reason"]) == ("", "length")


def test_tokens_and_prompts(engine: Launched) -> None:
    tokens = engine.http.post("/tokenize", json={"content": "äb"}).json()["tokens"]
    assert engine.http.post("/detokenize", json={"tokens": tokens}).json() == {"content": "äb"}
    prompt = engine.http.post("/apply-template", json=asked("A question")).json()["prompt"]
    assert "A question" in prompt
    props = engine.http.get("/props").json()
    assert props["total_slots"] == 2
    assert props["chat_template_caps"] == {"supports_tools": True, "supports_system_role": True}
    assert [slot["n_ctx"] for slot in engine.http.get("/slots").json()] == [CONTEXT] * 2


def test_a_prompt_beyond_the_context_is_refused_and_an_answer_ends_at_it(engine: Launched, busy: Launched) -> None:
    answer = engine.chat("x" * CONTEXT)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", CONTEXT)
    assert error["n_prompt_tokens"] > CONTEXT
    tokens = [1] * (CONTEXT - 3)
    last = engine.http.post("/completion", json={"prompt": tokens, "temperature": 0}).json()
    assert (last["stop_type"], last["tokens_predicted"]) == ("limit", 3)


def test_what_two_prompts_share_is_read_once(engine: Launched) -> None:
    first = engine.chat("the same beginning " * 20).json()["usage"]
    again = engine.chat("the same beginning " * 20 + "and more").json()["usage"]
    assert first["prompt_tokens"] > 300
    assert again["prompt_tokens_details"]["cached_tokens"] > 300


def test_a_seed_decides_beside_others(engine: Launched) -> None:
    def words(seed: int) -> str:
        body = {
            "prompt": "x",
            "max_tokens": 8,
            "temperature": 5000.0,
            "top_p": 1.0,
            "min_p": 0,
            "top_k": 0,
            "seed": seed,
        }
        text: str = engine.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        return text

    assert words(7) == words(7)
    assert len({words(seed) for seed in range(5)}) > 1


REFUSED: Mapping[str, Any] = {
    "grammar": 'root ::= "a"',
    "json_schema": {"type": "object"},
    "response_format": {"type": "json_object"},
    "tool_choice": "required",
    "n": 2,
    "logprobs": True,
    "adapters": "/etc",
    "draft_model": "owner/repo",
    "mirostat": 2,
    "min_tokens": 3,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused_by_name(engine: Launched, name: str) -> None:
    answer = engine.chat(**{name: REFUSED[name]})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (501, "not_supported_error", name)


HOSTILE: Mapping[str, tuple[str, object]] = {
    "several prompts": ("/v1/completions", {"prompt": ["a", "b"]}),
    "no prompt": ("/v1/completions", {"prompt": ""}),
    "no prompt at all": ("/v1/completions", {}),
    "tokens that are none": ("/completion", {"prompt": [1, 1 << 40]}),
    "null": ("/v1/chat/completions", {"messages": None}),
    "no messages": ("/v1/chat/completions", {"messages": []}),
    "a message that is none": ("/v1/chat/completions", {"messages": [None]}),
    "a picture": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
    ),
    "a template's variables": ("/v1/chat/completions", {**asked("x"), "chat_template_kwargs": {"messages": 1}}),
    "a template": ("/v1/chat/completions", {**asked("x"), "chat_template_kwargs": {"chat_template": "{{ 1 }}"}}),
    "tools of a template": ("/v1/chat/completions", {**asked("x"), "chat_template_kwargs": {"tools": []}}),
    "no variables": ("/v1/chat/completions", {**asked("x"), "chat_template_kwargs": 7}),
    "a temperature": ("/v1/chat/completions", {**asked("x"), "temperature": "hot"}),
    "a bias": ("/v1/chat/completions", {**asked("x"), "logit_bias": {"99999999": 1}}),
    "a bias of nothing": ("/v1/chat/completions", {**asked("x"), "logit_bias": {"a": {}}}),
    "stops": ("/v1/chat/completions", {**asked("x"), "stop": ["x"] * 1000}),
    "a list": ("/v1/chat/completions", [1]),
    "another path": ("/v1/embeddings", {"input": "x"}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_hostile_is_refused_and_ends_nothing(engine: Launched, what: str) -> None:
    path, body = HOSTILE[what]
    answer = engine.http.post(path, json=body)
    assert 400 <= answer.status_code < 600, answer.text
    assert answer.json()["error"]["message"]
    assert "Traceback" not in answer.text
    assert engine.chat().json()["choices"][0]["message"]["content"] == HELLO


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"\xff", b'{"a":' * 50_000], ids=["empty", "cut", "deep", "bytes", "deeper"]
)
def test_what_is_no_json_is_refused(engine: Launched, body: bytes) -> None:
    answer = engine.http.post("/v1/chat/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("extreme", [{"top_k": 1 << 30}, {"top_p": 0}, {"repeat_penalty": 0.0}, {"xtc_probability": 1}])
def test_extremes_of_sampling_end_nothing(engine: Launched, extreme: Json) -> None:
    body = {**asked("x"), "temperature": 1, "max_tokens": 4, **extreme}
    assert engine.http.post("/v1/chat/completions", json=body).status_code == 200
    assert engine.chat().status_code == 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_client_that_leaves_frees_its_slot(busy: Launched, phase: str, stream: bool) -> None:
    content, mark = ("Hi", '"delta":{"content"') if phase == "decode" else ("x" * 20_000, "prompt_progress")
    body = {**asked(content), "stream": True, "return_progress": True}
    if stream:
        with busy.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert any(mark in line for line in answer.iter_lines())
    else:
        with pytest.raises(httpx.ReadTimeout):
            busy.http.post("/v1/chat/completions", json={**body, "stream": False}, timeout=0.3)
    wait_until(lambda: busy.busy() == 0, "the slot is free")


def test_answers_are_written_side_by_side_and_others_wait(busy: Launched) -> None:
    def begun(stack: contextlib.ExitStack, **more: object) -> httpx.Response:
        body = {**asked("Hi"), "stream": True, **more}
        return stack.enter_context(busy.http.stream("POST", "/v1/chat/completions", json=body))

    with contextlib.ExitStack() as two, contextlib.ExitStack() as one:
        texts = [begun(two).iter_text() for _ in range(2)]
        assert all("data: " in next(text) for text in texts)
        assert busy.busy() == 2
        third = begun(one, max_tokens=3)
        two.close()
        assert third.read().count(b"data: ") > 2
    wait_until(lambda: busy.busy() == 0, "all have ended")


def test_one_by_one_with_a_quantised_cache(endless: MlxLaunch, talker: MlxLaunch) -> None:
    settings = replace(talker.settings, kv_bits=8)
    with launched(replace(talker, settings=settings)) as found:
        assert found.http.get("/props").json()["total_slots"] == 1
        assert found.chat().json()["choices"][0]["message"]["content"] == HELLO
        assert found.chat("Hi, and more").json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    with launched(replace(endless, settings=replace(endless.settings, kv_bits=4))) as found:
        for content in ("Hi", "x" * 20_000):
            with pytest.raises(httpx.ReadTimeout):
                found.http.post("/v1/chat/completions", json=asked(content), timeout=0.2)
            wait_until(lambda: found.busy() == 0, "the slot is free")


@pytest.mark.parametrize("how", ["stdin", "parent"])
def test_it_ends_with_its_parent(talker: MlxLaunch, how: str) -> None:
    if how == "stdin":
        with launched(talker) as found:
            assert found.process.stdin is not None
            found.process.stdin.close()
            assert found.process.wait(PATIENCE) == 0
        return
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=sys.stdin, stdout=subprocess.PIPE, text=True)\n"
        "print(child.pid, child.stdout.readline(), flush=True)\n"
        "time.sleep(600)\n"
    )
    with scratch_home() as home:
        argv = talker.argv(require_mlx(), str(home / "s"))
        parent = subprocess.Popen(
            [sys.executable, "-c", code, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not _is_running(pid), "it has ended")
        parent.communicate()


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("fault", ["no weights", "code"])
def test_a_load_that_fails_ends_it_and_says_why(talker: MlxLaunch, tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for path in talker.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    if fault == "no weights":
        os.truncate(folder / "model.safetensors", 100)
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "model_file": "evil.py"}))
        (folder / "evil.py").write_text("import os; os.abort()")
    with launched(replace(talker, folder=folder), ready=False) as found:
        assert found.process.wait(PATIENCE) == 3
        assert found.process.stderr is not None
        said = found.process.stderr.read()
        assert "mlx: cannot load the model: error:" in said
        assert ("code of its own" in said) == (fault == "code")


def test_it_ends_where_nothing_can_be_computed_any_more(talker: MlxLaunch) -> None:
    """The thread that computes dies of a fault that nobody foresaw; here one within a work."""
    code = (
        "import sys; sys.path.append(sys.argv.pop(1))\n"
        "from launcher.generation import Generation\n"
        "ask = Generation.ask\n"
        "def broken(self, work):\n"
        "    work.sampler = 7\n"
        "    ask(self, work)\n"
        "Generation.ask = broken\n"
        "import runpy; runpy.run_module('launcher', run_name='__main__', alter_sys=True)\n"
    )
    with scratch_home() as home:
        argv = list(talker.argv(require_mlx(), str(home / "s")))
        argv[argv.index("-c") + 1] = code
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert '"ready"' in process.stdout.readline() + process.stdout.readline()
            with (
                httpx.Client(transport=httpx.HTTPTransport(uds=str(home / "s")), timeout=PATIENCE) as http,
                pytest.raises(httpx.TransportError),
            ):
                http.post("http://e/v1/chat/completions", json=asked("Hi"))
            assert process.wait(PATIENCE) == 4
            assert "mlx: it has ended: error:" in process.stderr.read()
