"""A backend as LocalAI meets it: attached or spawned, in front of a real daemon and a real engine."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from tests.cli.localai.conftest import ENDLESS, Stage
from tests.cli.localai.loader import ALWAYS, Client, argv, spawned, told
from tests.support.daemon import environment, running_daemon, scratch_home, wait_until
from tests.support.gated import Gate
from tests.support.patience import PATIENCE
from tests.support.projector import write_projector
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

TOOLS = json.dumps([
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
])


def text_of(replies: list[Any]) -> str:
    """As LocalAI joins the bytes of replies."""
    return b"".join(one.message for one in replies).decode()


def deltas_of(replies: list[Any]) -> list[Any]:
    return [delta for one in replies for delta in one.chat_deltas]


def calls_of(replies: list[Any]) -> dict[int, list[str]]:
    """As LocalAI gathers calls: id and name replace, arguments append."""
    found: dict[int, list[str]] = {}
    for delta in deltas_of(replies):
        for call in delta.tool_calls:
            one = found.setdefault(call.index, ["", "", ""])
            one[:2] = [call.id or one[0], call.name or one[1]]
            one[2] += call.arguments
    return found


def test_health_comes_before_any_model_and_a_request_before_it_is_told_so(stage: Stage) -> None:
    assert stage.client("Health").message == b"OK"
    assert stage.client("Status").state == 0
    for rpc, given in {"Predict": stage.client.chat("Hi"), "TokenizeString": {"Prompt": "Hi"}, "Rerank": {}}.items():
        status, text = stage.client.error(rpc, **given)
        assert (status, text.partition(":")[0]) == ("FAILED_PRECONDITION", "model_not_loaded")


def test_a_model_is_loaded_asked_counted_and_freed(stage: Stage, talker: Path) -> None:
    client = stage.client
    loaded = client.load("talker.gguf", talker, ContextSize=2048, Options=["parallel:2"])
    assert (loaded.success, loaded.message) == (True, "")
    (model,) = (one for one in stage.daemon.http.get("/api/v1/models").json()["models"] if one["state"] == "ready")
    assert {"ctx_size": 2048, "batch_size": 512, "parallel": 2, "threads": 2}.items() <= model["given"].items()
    assert "n_gpu_layers" not in model["given"]

    whole = client("Predict", **client.chat("Hi", ModelIdentity="talker.gguf"))
    assert whole.message.decode() == "Hello from here — ✓"
    assert [one.reasoning_content.strip() for one in whole.chat_deltas] == ["Hm."]
    assert min(whole.tokens, whole.prompt_tokens, whole.timing_token_generation) > 0

    figures = client("GetMetrics")
    assert (figures.tokens_generated, figures.prompt_tokens_processed) == (whole.tokens, whole.prompt_tokens)
    assert figures.tokens_per_second > 0
    status = client("Status")
    assert status.state == 2
    assert status.memory.total == sum(status.memory.breakdown.values()) == sum(model["footprint"].values())

    assert client("Free").success
    assert stage.daemon.model(model["id"])["state"] == "unloaded"
    assert client.error("Predict", **client.chat("Hi"))[0] == "FAILED_PRECONDITION"


def test_a_stream_has_deltas_and_its_last_reply_the_totals(stage: Stage, talker: Path) -> None:
    client = stage.client
    assert client.load("talker.gguf", talker).success
    whole = client("Predict", **client.chat("Hi"))
    *pieces, last = client.stream("PredictStream", **client.chat("Hi", Logprobs=1, TopLogprobs=2))
    assert text_of(pieces) == whole.message.decode()
    assert "".join(delta.content for delta in deltas_of(pieces)) == whole.message.decode()
    assert "".join(delta.reasoning_content for delta in deltas_of(pieces)).strip() == "Hm."
    assert not any(one.tokens for one in pieces)
    assert (last.tokens, last.prompt_tokens) == (whole.tokens, whole.prompt_tokens)
    assert (last.message, len(last.chat_deltas)) == (b"", 0)
    content = json.loads(last.logprobs)["content"]
    assert "Hello from here" in "".join(one["token"] for one in content)
    assert {"token", "logprob", "bytes", "top_logprobs"} <= set(content[0])


def test_calls_are_deltas_whole_and_in_pieces(stage: Stage, talker: Path) -> None:
    client = stage.client
    assert client.load("talker.gguf", talker).success
    asked = client.chat("Weather?", Tools=TOOLS, ToolChoice='"auto"')
    for replies in ([client("Predict", **asked)], list(client.stream("PredictStream", **asked))):
        ((identity, name, arguments),) = calls_of(replies).values()
        assert (name, json.loads(arguments)) == ("get_weather", {"city": "Paris"})
        assert identity
        assert replies[-1].tokens > 0
    history = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": json.dumps([{**_call("{}"), "id": "c1"}])},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
    ]
    assert client("Predict", **{**asked, "Messages": history}).tokens > 0


def _call(arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def test_a_prompt_of_localai_s_own_template_is_continued_as_it_is(stage: Stage, scripted_model: ScriptedModel) -> None:
    client = stage.client
    assert client.load("plain.gguf", scripted_model("<think>Hm.</think> Yes", template="plain")).success
    asked = {**ALWAYS, "Prompt": "Is it?", "StopPrompts": ["s"], "Tokens": 50, "ModelIdentity": "plain.gguf"}
    whole = client("Predict", **asked)
    replies = list(client.stream("PredictStream", **asked))
    assert text_of(replies) == whole.message.decode() == "<think>Hm.</think> Ye"
    assert not deltas_of([whole, *replies])
    assert replies[-1].tokens == whole.tokens > 0


def test_two_models_on_one_address_are_told_apart(stage: Stage, scripted_model: ScriptedModel) -> None:
    client = stage.client
    for name, text in {"a.gguf": "I am A.", "b.gguf": "I am B."}.items():
        assert client.load(name, scripted_model(text)).success
    for name, text in {"a.gguf": "I am A.", "b.gguf": "I am B.", "": "I am B."}.items():
        assert client("Predict", **client.chat("Who?", ModelIdentity=name)).message.decode() == text
    status, text = client.error("Predict", **client.chat("Who?", ModelIdentity="c.gguf"))
    assert status == "NOT_FOUND"
    assert "model identity mismatch" in text.lower()
    freed = client("Free")
    assert not freed.success
    assert "a.gguf, b.gguf" in freed.message
    assert client("Predict", **client.chat("Who?", ModelIdentity="a.gguf")).message == b"I am A."


def test_a_model_that_two_backends_share_stays_with_the_one_that_had_it_loaded(stage: Stage, talker: Path) -> None:
    assert stage.client.load("talker.gguf", talker).success
    with spawned(stage.home, stage.engine) as second:
        assert second.client.load("same.gguf", talker).success
        assert second.client("Predict", **second.client.chat("Hi", ModelIdentity="same.gguf")).message
        assert second.client("Free").success
    (model,) = (one for one in models(stage) if one["path"] == str(talker))
    assert model["state"] == "ready"
    assert stage.client("Free").success
    assert stage.daemon.model(model["id"])["state"] == "unloaded"


def test_a_load_that_fails_says_why_in_its_result(stage: Stage, talker: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    cases: list[tuple[str, Path | None, dict[str, Any], str]] = [
        ("broken.gguf", broken, {}, "gguf_invalid: "),
        ("nowhere.gguf", None, {}, "invalid_request: "),
        ("talker.gguf", talker, {"Options": ["no_such_option:3"]}, "option_not_supported: "),
        ("talker.gguf", talker, {"EngineArgs": '{"cache_type_k": "q9"}'}, "invalid_request: "),
        ("talker.gguf", talker, {"EngineArgs": "[]"}, "invalid_request: EngineArgs"),
        ("talker.gguf", talker, {"VocabOnly": True}, "invalid_request: VocabOnly"),
        ("talker.gguf", talker, {"DraftModel": str(talker)}, "invalid_request: "),
    ]
    for name, file, options, begins in cases:
        result = stage.client.load(name, file, **options)
        assert (result.success, result.message[: len(begins)]) == (False, begins)
    assert stage.client.error("Predict", **stage.client.chat("Hi"))[0] == "FAILED_PRECONDITION"
    assert not [one for one in stage.daemon.http.get("/api/v1/models").json()["models"] if one["state"] == "ready"]


def test_a_request_that_cannot_be_answered_says_why_and_nothing_before(stage: Stage, talker: Path) -> None:
    client = stage.client
    assert client.load("talker.gguf", talker, ContextSize=512).success
    cases = {
        "invalid_request: `temperature`": client.chat("Hi", Temperature=-1.0),
        "invalid_request: PromptCachePath": client.chat("Hi", PromptCachePath="/tmp/x"),
        "invalid_request: Tools": client.chat("Hi", Tools="{"),
        "context_length_exceeded": client.chat("word " * 5000),
    }
    for begins, asked in cases.items():
        assert _begins(client.error("Predict", **asked), begins)
        with pytest.raises(grpc.RpcError) as raised:
            list(client.stream("PredictStream", **asked))
        assert _begins(told(raised.value), begins)
    assert client.error("Rerank", query="a", documents=["b"])[0] == "UNIMPLEMENTED"
    assert client.error("Score")[0] == "UNIMPLEMENTED"


def _begins(error: tuple[str, str], begins: str) -> bool:
    return error[0] == "INVALID_ARGUMENT" and error[1].startswith(begins)


@pytest.mark.parametrize("rpc", ["Predict", "PredictStream"])
def test_a_client_that_cancels_frees_its_slot(stage: Stage, endless: Path, rpc: str) -> None:
    client = stage.client
    assert client.load("endless.gguf", endless, ContextSize=ENDLESS).success
    model = next(one["id"] for one in models(stage) if one["state"] == "ready")
    asked = client.chat("Go on")
    if rpc == "Predict":
        call = client.begin(rpc, **asked)
    else:
        call = client.stream(rpc, **asked)
        next(call)
    wait_until(lambda: stage.daemon.busy_slots(model) == 1, "the slot is at work")
    assert client("Status").state == 1
    call.cancel()
    wait_until(lambda: stage.daemon.busy_slots(model) == 0, "the slot is free")
    wait_until(stage.daemon.at_rest, "the daemon has no request")
    wait_until(lambda: ended_by_its_client(stage, model), "the history says that the client left")


def ended_by_its_client(stage: Stage, model: str) -> bool:
    found = stage.daemon.http.get("/api/v1/history", params={"model": model, "limit": 1}).json()["requests"]
    return [one["code"] for one in found] == ["client_gone"]


def test_a_load_that_is_cancelled_is_ended(engine_binary: Path, talker: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path, engine_binary)
    with scratch_home() as home, running_daemon(home, gate.engine) as daemon, spawned(home, gate.engine) as backend:
        gate.close()
        call = backend.client.begin("LoadModel", Model="talker.gguf", ModelFile=str(talker), MMap=True)

        def states() -> set[str]:
            return {one["state"] for one in daemon.http.get("/api/v1/models").json()["models"]}

        wait_until(lambda: "loading" in states(), "the model is being loaded")
        call.cancel()
        wait_until(lambda: states() == {"unloaded"}, "nothing is loaded")
        gate.open()
        assert backend.client.error("Predict", **backend.client.chat("Hi"))[0] == "FAILED_PRECONDITION"


def test_vectors_ranks_and_tokens(stage: Stage, talker: Path) -> None:
    client = stage.client
    assert client.load("talker.gguf", talker, Embeddings=True).success
    tokens = client("TokenizeString", Prompt="Hello from here", ModelIdentity="talker.gguf")
    assert tokens.length == len(tokens.tokens) > 0
    assert client("Detokenize", tokens=tokens.tokens).content.strip() == "Hello from here"
    by_text = client("Embedding", Embeddings="Hello")
    assert (by_text.tokens, by_text.layout, len(by_text.embeddings)) == (1, 1, by_text.dim)
    assert by_text.prompt_tokens > 0
    by_tokens = client("Embedding", EmbeddingTokens=list(tokens.tokens))
    assert by_tokens.dim == by_text.dim
    assert client.error("Embedding")[0] == "INVALID_ARGUMENT"

    assert client.load("talker.gguf", talker, Reranking=True).success
    documents = ["Hello from here", "Nothing", "Hello"]
    ranked = client("Rerank", query="Hello", documents=documents, top_n=2, ModelIdentity="talker.gguf")
    assert len(ranked.results) == 2
    assert all(documents[one.index] == one.text for one in ranked.results)
    assert ranked.usage.total_tokens > 0


def test_metadata_tell_of_the_template(stage: Stage, talker: Path) -> None:
    assert stage.client.load("talker.gguf", talker).success
    told = stage.client("ModelMetadata", Model="talker.gguf")
    assert told.supports_thinking
    assert "<|im_start|>user\ntest<|im_end|>" in told.rendered_template


def test_an_image_of_20_mb_passes(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> None:
    talker = scripted_model("I see.")
    projector = write_projector(tmp_path / "eyes.gguf", 128)
    settings = {"models": {"seeing": {"file": str(talker), "mmproj": str(projector)}}}
    side = 2600
    size = 54 + side * side * 3
    header = b"BM" + size.to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
    header += side.to_bytes(4, "little") * 2 + b"\1\0\x18\0" + bytes(24)
    picture = base64.b64encode(header + bytes(side * side * 3)).decode()
    assert size > 20_000_000
    with (
        scratch_home() as home,
        running_daemon(home, engine_binary, settings),
        spawned(home, engine_binary) as backend,
    ):
        client = backend.client
        assert client.load("some/where.gguf", talker, MMProj=str(projector)).success
        replies = list(client.stream("PredictStream", **client.chat("What is it?", Images=[picture])))
        assert text_of(replies) == "I see."
        refused = client.error("Predict", **{**ALWAYS, "Prompt": "What is it?", "Images": ["/9j/"]})
        assert refused[0] == "INVALID_ARGUMENT"
        assert "use_tokenizer_template" in refused[1]


def test_a_token_is_demanded_of_every_call(engine_binary: Path) -> None:
    with scratch_home() as home:
        env = {"LOCALAI_GRPC_AUTH_TOKEN": "sesame"}
        with spawned(home, engine_binary, "--port", "0", env=env) as backend:
            assert backend.client("Health").message == b"OK"
            for token in ("", "sesam", "sesame2"):
                stranger = Client(backend.client.address, token)
                for rpc in ("Health", "LoadModel", "Predict", "PredictStream", "GetMetrics", "ModelMetadata"):
                    assert _refused(stranger, rpc) == ("UNAUTHENTICATED", "invalid token")


def _refused(client: Client, rpc: str) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as raised:
        list(client.stream(rpc)) if rpc == "PredictStream" else client(rpc)
    return told(raised.value)


def pids_of(home: Path) -> list[int]:
    return [json.loads((home / "endpoint.json").read_text())["pid"]]


def test_without_a_daemon_the_first_load_starts_one_and_a_dead_one_is_replaced(
    engine_binary: Path, talker: Path
) -> None:
    with scratch_home() as home, spawned(home, engine_binary, "--port", "0") as backend:
        assert backend.client("Health").message == b"OK"
        assert not (home / "endpoint.json").exists()
        daemons: list[int] = []
        try:
            assert backend.client.load("talker.gguf", talker).success
            daemons += pids_of(home)
            psutil.Process(daemons[0]).kill()
            wait_until(lambda: gone(daemons[0]), "the daemon is gone")
            # By this LocalAI knows that it has to load the model anew.
            assert backend.client.error("Predict", **backend.client.chat("Hi"))[0] == "UNAVAILABLE"
            assert backend.client.load("talker.gguf", talker).success
            daemons += pids_of(home)
            assert backend.client("Predict", **backend.client.chat("Hi")).message
        finally:
            for pid in daemons:
                end(pid)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def end(pid: int) -> None:
    """End a daemon that is nobody's child here."""
    if not gone(pid):
        process = psutil.Process(pid)
        process.terminate()
        process.wait(PATIENCE)


def test_sigterm_ends_it_and_unloads_what_was_loaded_for_it(stage: Stage, talker: Path, endless: Path) -> None:
    before = stage.daemon.load(str(talker))
    assert stage.client.load("talker.gguf", talker).success
    assert stage.client.load("endless.gguf", endless, ContextSize=ENDLESS).success
    answer = stage.client.stream("PredictStream", **stage.client.chat("Go on", ModelIdentity="endless.gguf"))
    next(answer)
    stage.backend.process.terminate()
    _, errors = stage.backend.process.communicate(timeout=PATIENCE)
    assert (stage.backend.process.returncode, errors) == (0, "")
    with pytest.raises(grpc.RpcError):
        list(answer)

    def states() -> dict[str, str]:
        return {one["path"]: one["state"] for one in models(stage)}

    wait_until(lambda: states()[str(endless)] == "unloaded", "what was loaded for it is unloaded")
    assert states()[str(talker)] == "ready"
    stage.daemon.http.post("/api/v1/models/unload", json={"model": before["id"]}).raise_for_status()


_PARENT = "import subprocess, sys; child = subprocess.Popen(sys.argv[1:]); print(child.pid, flush=True); child.wait()"


def test_it_ends_when_the_process_that_started_it_is_killed(stage: Stage, talker: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, *argv()],
        env=environment(stage.home, stage.engine, LOCALAI_BACKEND_PARENT_WATCH_INTERVAL="20ms"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent, parent.stdout as output:
        told = [output.readline(), output.readline()]
        pid = int(next(line for line in told if line.strip().isdigit()))
        port = json.loads(next(line for line in told if not line.strip().isdigit()))["port"]
        assert Client(f"127.0.0.1:{port}").load("talker.gguf", talker).success
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: gone(pid), "the backend has ended")
    wait_until(lambda: all(one["state"] != "ready" for one in models(stage)), "its model is unloaded")


def models(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.daemon.http.get("/api/v1/models").json()["models"]
    return found


def test_an_address_that_is_taken_is_the_last_line_of_its_errors(stage: Stage) -> None:
    failed = run(stage, "--addr", stage.client.address)
    assert failed.returncode == 1
    last = failed.stderr.strip().splitlines()[-1]
    assert "[address_in_use]" in last
    assert stage.client.address in last


def test_beyond_this_machine_it_listens_with_a_token_alone(stage: Stage) -> None:
    failed = run(stage, "--addr", "0.0.0.0:0")
    assert failed.returncode == 1
    assert "LOCALAI_GRPC_AUTH_TOKEN" in failed.stderr


def run(stage: Stage, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "supervisor", "localai-backend", *more],
        env=environment(stage.home, stage.engine),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
