"""Command lines as the real llama-server reads them, and what it makes of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.core.launch import LaunchOptions, LaunchSpec, LoraAdapter, ModelFacts, Placed, build_launch
from supervisor.core.options import Way, options_of
from supervisor.llamacpp.probe import capabilities
from tests.support.adapters import write_stubborn_adapter
from tests.support.option_values import strategy
from tests.support.patience import PATIENCE
from tests.support.placements import placement
from tests.support.plain_server import PlainServer, plain_server
from tests.support.scripted import ScriptedModel
from tests.support.workers import rpc_worker

pytestmark = pytest.mark.engine

REPEATED = "one two three four one two three four one two three four one two three four."


@pytest.fixture(scope="module")
def known(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Capabilities:
    return capabilities(engine_binary, tmp_path_factory.mktemp("cache") / "capabilities.json")


def launch(
    binary: Path, model: Path, known: Capabilities, options: LaunchOptions, placed: Placed | None = None
) -> LaunchSpec:
    return build_launch(
        *(str(binary), str(model), "/none.sock", "tiny"), options, ModelFacts(), known.flags, placed=placed, cores=1
    )


class Starter:
    """Starts models with options; every one is small and has one slot where nothing else is asked for."""

    def __init__(self, binary: Path, known: Capabilities) -> None:
        self.binary = binary
        self.known = known

    @contextmanager
    def __call__(
        self, model: Path, placed: Placed | None = None, options: Mapping[str, Any] | None = None, **more: Any
    ) -> Iterator[PlainServer]:
        wanted = LaunchOptions(**{"ctx_size": 512, "parallel": 1, **(options or {}), **more})
        argv = launch(self.binary, model, self.known, wanted, placed).argv
        with plain_server(self.binary, model, *argv[argv.index("--alias") :]) as server:
            yield server


@pytest.fixture(scope="module")
def start(engine_binary: Path, known: Capabilities) -> Starter:
    return Starter(engine_binary, known)


# -- the parser --------------------------------------------------------------------------------------------------------

# Devices are none, so that nothing depends on what the machine has; a projector's goes with one
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("device", "spec_draft_device"), st.just(())),
    "spec_type": st.lists(
        st.sampled_from(["default", "none", "draft-mtp", "ngram-simple", "ngram-map-k", "ngram-mod", "ngram-cache"]),
        max_size=3,
        unique=True,
    ).map(tuple),
}
# Those that name something of the machine have tests of their own.
APART = {"rpc", "chat_template_file", "slot_save_path"}
ROWS = {row.name: row for row in options_of(LaunchOptions) if row.way is not Way.NONE and row.name not in APART}


def values(field: str) -> st.SearchStrategy[Any]:
    return VALUES[field] if field in VALUES else strategy(ROWS[field])


@cache
def parsed(argv: tuple[str, ...]) -> str:
    """What llama-server has against these arguments, which it reads before it prints its help; "" for nothing."""
    done = subprocess.run([*argv, "--help"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return "" if done.returncode == 0 else done.stderr


def test_the_check_would_find_a_mistake(engine_binary: Path) -> None:
    assert parsed((str(engine_binary), "--ctx-size", "512")) == ""
    assert "stoi" in parsed((str(engine_binary), "--ctx-size", "many"))
    assert "invalid argument" in parsed((str(engine_binary), "--ctx-sise", "512"))
    assert "invalid argument" in parsed((str(engine_binary), "--ctx-size=512"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_combination_of_options_is_readable(engine_binary: Path, known: Capabilities, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(ROWS)), unique=True, max_size=25), "fields")
    options = LaunchOptions(**{name: data.draw(values(name), name) for name in chosen})
    if "{{" in (options.chat_template or ""):
        options = replace(options, jinja=None)  # llama-server takes names of templates alone without Jinja
    assert parsed(launch(engine_binary, Path("/m.gguf"), known, options).argv) == ""


@pytest.mark.parametrize("field", sorted(ROWS))
def test_each_option_alone_is_readable(engine_binary: Path, known: Capabilities, field: str) -> None:
    @settings(max_examples=4, deadline=None)
    @given(value=values(field))
    def check(value: Any) -> None:
        argv = launch(engine_binary, Path("/m.gguf"), known, LaunchOptions(**{field: value})).argv
        assert parsed(argv) == ""

    check()


# -- what it makes of them ---------------------------------------------------------------------------------------------


def test_two_workers_hold_what_the_plan_gives_them(
    start: Starter, engine_binary: Path, scripted_model: ScriptedModel
) -> None:
    model = scripted_model("From two devices.")
    plan = placement(("RPC0", "RPC1"), ctx_size=1024, parallel=2, n_gpu_layers=2, tensor_split=(1, 1))
    with rpc_worker(engine_binary) as first, rpc_worker(engine_binary) as second:
        placed = Placed(plan, names={"RPC0": "RPC1", "RPC1": "RPC0"}, rpc=(first, second))
        options = {"ctx_size": 9999, "tensor_split": (9.0,), "extra_args": ("-lv", "4")}  # the plan knows better
        with start(model, placed, options) as server:
            assert server.chat("Hello")["message"]["content"] == "From two devices."
            slots = server.request("GET", "/slots")[1]
            log = server.log.read_text(errors="replace")
    assert [slot["n_ctx"] for slot in slots] == [512, 512]
    assert set(re.findall(r"RPC0\[([\d.:]+)\] model buffer size", log)) == {first, second}
    assert re.findall(r"RPC0\[([\d.:]+)\] KV buffer size", log) == [second], "the plan's first device is renamed"


def test_a_plan_without_devices_keeps_off_those_that_there_are(
    start: Starter, engine_binary: Path, scripted_model: ScriptedModel
) -> None:
    with rpc_worker(engine_binary) as worker:
        placed = Placed(placement((), ctx_size=512, parallel=1), rpc=(worker,))
        with start(scripted_model(), placed, {"extra_args": ("-lv", "4")}) as server:
            log = server.log.read_text(errors="replace")
    assert re.search(r"CPU.* model buffer size", log)
    assert not re.search(r"RPC.* buffer size", log)


def test_an_adapter_changes_what_the_model_says(start: Starter, scripted_model: ScriptedModel, tmp_path: Path) -> None:
    model = scripted_model("As written.")
    stubborn = write_stubborn_adapter(tmp_path / "with, a comma.gguf", model, "!")
    other = write_stubborn_adapter(tmp_path / "other.gguf", model, "?")
    with start(model, lora=(LoraAdapter(str(stubborn), 0.5), LoraAdapter(str(other), 0))) as server:
        listed = server.request("GET", "/lora-adapters")[1]
        said = server.chat("Hello", max_tokens=5)["message"]["content"]
    assert [(one["path"], one["scale"]) for one in listed] == [(str(stubborn), 0.5), (str(other), 0.0)]
    assert said == "!!!!!"


DRAFTS = {
    "default": {"spec_type": ("default",), "spec_ngram_mod_n_match": 4, "spec_ngram_mod_n_min": 2},
    "simple": {"spec_type": ("ngram-simple",), "spec_ngram_simple_size_n": 3, "spec_ngram_simple_size_m": 4},
    "map": {"spec_type": ("ngram-map-k",), "spec_ngram_map_k_size_n": 3, "spec_ngram_map_k_size_m": 4},
    "draft": {"spec_type": ("draft-simple",), "spec_draft_n_max": 4, "spec_draft_type_k": "f32"},
}


@pytest.mark.parametrize("options", DRAFTS.values(), ids=DRAFTS)
def test_guesses_are_made_and_the_answer_stays(
    start: Starter, scripted_model: ScriptedModel, options: dict[str, Any]
) -> None:
    model = scripted_model(REPEATED, endless=True)
    second = {"spec_draft_model": str(model)} if "draft-simple" in options["spec_type"] else {}
    with start(model, None, {**options, **second}) as server:
        answer = server.post("/completion", {"prompt": "Hi", "n_predict": 200, "temperature": 0})
    assert answer["content"].startswith(REPEATED)
    assert answer["timings"].get("draft_n", 0) > 0
    assert answer["timings"]["draft_n_accepted"] > 0


def test_without_speculation_nothing_is_guessed(start: Starter, scripted_model: ScriptedModel) -> None:
    with start(scripted_model(REPEATED, endless=True)) as server:
        answer = server.post("/completion", {"prompt": "Hi", "n_predict": 50})
    assert not answer["timings"].get("draft_n")


def test_a_template_of_our_own_and_what_it_reads(start: Starter, scripted_model: ScriptedModel, tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{{ word }}:{{ messages[0].content }}")
    options = {"chat_template_file": str(tmp_path / "own.jinja"), "chat_template_kwargs": {"word": 'a "b"'}}
    asked = {"messages": [{"role": "user", "content": "Hello"}]}
    with start(scripted_model(), None, options) as server:
        assert server.post("/apply-template", asked)["prompt"] == 'a "b":Hello'
    with start(scripted_model(), chat_template="{{ messages[0].content }}!") as server:
        assert server.post("/apply-template", asked)["prompt"] == "Hello!"


def test_thinking_goes_where_it_is_asked_to(start: Starter, scripted_model: ScriptedModel) -> None:
    model = scripted_model("Yes.", think="Hm.")
    with start(model) as server:
        assert server.chat("Hello")["message"]["reasoning_content"].strip() == "Hm."
    with start(model, reasoning_format="none") as server:
        assert "Hm." in server.chat("Hello")["message"]["content"]


def test_slots_are_saved_where_it_is_allowed(start: Starter, scripted_model: ScriptedModel, tmp_path: Path) -> None:
    with start(scripted_model(), slot_save_path=str(tmp_path)) as server:
        server.post("/completion", {"prompt": "Hi", "n_predict": 2, "id_slot": 0})
        server.post("/slots/0?action=save", {"filename": "kept"})
    assert (tmp_path / "kept").stat().st_size > 0


@pytest.mark.parametrize(
    "options",
    [
        {"load_mode": "none"},
        {"load_mode": "mlock"},
        {"load_mode": "mmap+mlock", "repack": False, "op_offload": False, "kv_offload": False},
        {"kv_unified": True, "parallel": 3, "cache_type_k": "q8_0", "cache_type_v": "q4_0", "flash_attn": "on"},
        {"rope_scaling": "yarn", "rope_scale": 2.0, "yarn_orig_ctx": 256, "yarn_ext_factor": 1.0, "swa_full": True},
        {"cache_ram": 0, "ctx_checkpoints": 0, "context_shift": True, "threads": 1, "threads_batch": 1, "fit": "off"},
        {"n_cpu_ffn": 1, "override_tensor": (r"blk\.0\.attn_.*=CPU", "output=CPU"), "device": (), "n_gpu_layers": 0},
        {"extra_args": ("--temp", "0", "--no-warmup", "--cache_reuse", "16")},
    ],
    ids=lambda options: next(iter(options)),
)
def test_it_starts_and_answers(start: Starter, scripted_model: ScriptedModel, options: dict[str, Any]) -> None:
    with start(scripted_model("Here."), None, options) as server:
        assert server.chat("Hello")["message"]["content"] == "Here."


def test_embeddings_and_ranks(start: Starter, scripted_model: ScriptedModel) -> None:
    ranked = {"query": "a", "documents": ["b"]}
    with start(scripted_model()) as server:
        assert server.request("POST", "/v1/embeddings", {"input": "a"})[0] == 501
        assert server.request("POST", "/v1/rerank", ranked)[0] == 501
    with start(scripted_model(), embeddings="on", pooling="mean") as server:
        assert server.post("/v1/embeddings", {"input": "a"})["data"][0]["embedding"]
    with start(scripted_model(), reranking=True) as server:
        assert len(server.post("/v1/rerank", ranked)["results"]) == 1
