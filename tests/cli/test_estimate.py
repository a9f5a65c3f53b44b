"""`inspect` and `estimate`: a model's facts and bytes from its header, without a daemon or an engine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.gguf_bytes import array, header, pair

PARTS = ("weights", "kv", "recurrent", "compute", "host_compute", "output", "projector")


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """A file with a vocabulary and no tensors."""
    path = tmp_path / "vocabulary.gguf"
    tokens = array("tokenizer.ggml.tokens", 8, ["a", "b", "c"])
    path.write_bytes(header(pair("general.architecture", 8, "llama"), tokens))
    return path


def test_inspect_says_what_the_header_says(cli: Cli, demo_model: Path) -> None:
    facts = cli("inspect", str(demo_model), "--json").json()
    assert (facts["arch"], facts["kind"], facts["n_layer"]) == ("llama", "model", 1)
    assert facts["n_ctx_train"] == 32768
    assert facts["template"]["tools"] is True
    assert facts["file_bytes"] == demo_model.stat().st_size
    assert "keys" not in facts
    assert "n vocab" in cli("inspect", "demo").out


def test_inspect_shows_keys_and_tensors_when_asked(cli: Cli, demo_model: Path) -> None:
    facts = cli("inspect", str(demo_model), "--keys", "--tensors", "--json").json()
    assert facts["keys"]["llama.context_length"] == 32768
    assert facts["keys"]["tokenizer.ggml.tokens"] == f"string[{facts['n_vocab']}]"
    assert sum(row["bytes"] for row in facts["tensors"]) == facts["tensor_bytes"]
    shown = cli("inspect", str(demo_model), "--keys", "--tensors").out
    assert "llama.context_length" in shown
    assert "LAYER" in shown


def test_a_vocabulary_is_told_from_a_model(cli: Cli, vocabulary: Path) -> None:
    facts = cli("inspect", str(vocabulary), "--json").json()
    assert facts["kind"] == "vocabulary only, no weights"
    refused = cli("estimate", str(vocabulary), "--json")
    assert refused.code == 1
    assert refused.json()["error"]["code"] == "vocabulary_only"


def test_estimate_gives_every_part_and_their_sum(cli: Cli, demo_model: Path) -> None:
    found = cli("estimate", str(demo_model), "--ctx-size", "8192", "--json").json()
    assert (found["arch"], found["n_ctx"], found["n_ctx_seq"], found["n_seq"]) == ("llama", 8192, 8192, 4)
    assert found["kv_bytes"] == 8192 * (32 + 32) * 2, "one head of 32 keys and 32 values in F16 per token"
    assert found["total_bytes"] == sum(found[f"{part}_bytes"] for part in PARTS)
    assert [device["name"] for device in found["devices"]] == ["GPU0", "CPU"]


def test_several_contexts_are_an_array(cli: Cli, demo_model: Path) -> None:
    found = cli("estimate", str(demo_model), "-c", "1024,2048,4096", "--json").json()
    assert [one["n_ctx"] for one in found] == [1024, 2048, 4096]
    assert found[0]["kv_bytes"] < found[1]["kv_bytes"] < found[2]["kv_bytes"]


def test_options_are_llama_servers(cli: Cli, demo_model: Path) -> None:
    plain = cli("estimate", str(demo_model), "-c", "8192", "-np", "2", "--json").json()
    assert (plain["n_ctx_seq"], plain["n_seq"]) == (4096, 2)
    small = cli("estimate", str(demo_model), "-c", "8192", "-ctk", "q8_0", "-ctv", "q8_0", "--json").json()
    assert small["kv_bytes"] == plain["kv_bytes"] * 34 // 64
    cpu = cli("estimate", str(demo_model), "-c", "8192", "-ngl", "0", "--json").json()
    assert next(device for device in cpu["devices"] if device["name"] == "GPU0")["weights_bytes"] == 0
    two = cli("estimate", str(demo_model), "-c", "8192", "-ts", "1,1", "--json").json()
    assert [device["name"] for device in two["devices"]] == ["GPU0", "GPU1", "CPU"]


def test_the_table_for_people(cli: Cli, demo_model: Path) -> None:
    shown = cli("estimate", str(demo_model)).out
    for word in ("weights", "cache", "compute", "total", "█", "32768", "q8_0", "prompt cache"):
        assert word in shown
    assert "4 slots share 32768 tokens" in shown
    assert re.search(r"^32768 +4\.0 MiB +\S+ MiB +2\.1 MiB ", shown, re.MULTILINE), (
        "a cache of q8_0 has 34 for 64 bytes"
    )
    assert ", context 8192: 8192 tokens\n" in cli("estimate", str(demo_model), "-c", "8192", "-np", "1").out
    assert "2 slots of 4096 tokens" in cli("estimate", str(demo_model), "-c", "8192", "-np", "2", "--no-kv-unified").out


def test_it_is_said_that_a_gpu_is_assumed(cli: Cli, demo_model: Path) -> None:
    assumed = cli("estimate", str(demo_model))
    assert "as if on one GPU, whether there is one or not" in assumed.err
    assert "one GPU (assumed)" in assumed.out
    assert "GPU0" not in assumed.out
    assert "GPU1" in cli("estimate", str(demo_model), "-ts", "1,1").out
    alone = cli("estimate", str(demo_model), "-ngl", "0")
    assert alone.err == ""
    assert "GPU" not in alone.out
    assert "no list of shares, such as 3,1" in cli("estimate", str(demo_model), "-ts", "a,b").err


def test_what_the_engine_would_refuse_is_refused(cli: Cli, demo_model: Path) -> None:
    refused = cli("estimate", str(demo_model), "-ctv", "q8_0", "-fa", "off")
    assert refused.code == 1
    assert "[quantized_v_needs_flash_attention]" in refused.err


def test_lines_in_lines_out(cli: Cli, demo_model: Path) -> None:
    asked = [
        {"target": str(demo_model), "options": {"ctx_size": 4096, "parallel": 1}},
        {"target": str(demo_model), "options": {"ctx_sise": 1}},
        {"target": str(demo_model), "options": {"batch_size": "many"}},
        {"target": "/absent.gguf"},
        {"no": "target"},
        {"target": str(demo_model)},
    ]
    done = cli("estimate", "--jsonl", stdin="\n".join(map(json.dumps, asked)) + "\nnot json\n")
    answers = [json.loads(line) for line in done.out.splitlines()]
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [
        *(None, "invalid_request", "invalid_request", "model_file_invalid", "invalid_request", None, "invalid_request"),
    ]
    assert answers[0]["n_ctx_seq"] == 4096
    assert answers[5]["n_ctx"] == 32768
    assert done.code == 1


def test_a_configured_model_is_found_by_its_id(cli: Cli, demo_model: Path) -> None:
    (cli.folder / "supervisor.yaml").write_text(f"models: {{mine: {{file: {demo_model}}}}}\n")
    (cli.folder / "supervisor.yaml").chmod(0o600)
    assert cli("estimate", "mine", "--json").json()["arch"] == "llama"
    unknown = cli("inspect", "yours", "--json")
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert "mine" in unknown.json()["error"]["message"]


def test_estimate_for_a_back_end(cli: Cli, demo_model: Path) -> None:
    """Where the caches are not f16, CUDA has copies of a layer's keys and values."""
    given = ("estimate", str(demo_model), "--json", "-ctk", "q8_0", "-ctv", "q8_0", "--backend")
    plain, cuda = (cli(*given, name).json() for name in ("cpu", "cuda"))
    assert cuda["compute_bytes"] > plain["compute_bytes"]
    assert cuda["kv_bytes"] == plain["kv_bytes"]
    assert cli("estimate", str(demo_model), "--backend", "abacus").code == 2
