"""The tools of the evidence: what they read in a log, how they keep it."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from tests.evidence import matrix
from tests.evidence.architectures import UPSTREAM, WIDE, dimensions, fixture, fixtures_of, metadata
from tests.evidence.make import Tensor, write_model
from tests.evidence.measure import Cache, Measurement, parse_log
from tests.evidence.subjects import DATA, pack_tensors, recorded_subjects, recorded_tensors, unpack_tensors

LOG = DATA / "sample.log"


def test_a_log_is_read() -> None:
    assert parse_log(LOG.read_text("utf-8").splitlines()) == {
        "n_seq": 4,
        "n_ctx": 4096,
        "n_ctx_seq": 1024,
        "caches": (Cache(1024, 8, 4, 16.0, 8.0),),
        "states": (3.38, 72.0),
        "model": {"CPU_Mapped": 76.14},
        "output": {"CPU": 0.06},
        "kv": {"CPU": 24.0},
        "recurrent": {"CPU": 75.38},
        "compute": {"RPC0": 13.52, "CPU": 1.5},
        "breakdown": {"RPC0": [4155, 1024, 124], "Host": [410, 0, 40]},
    }


def test_a_measurement_survives_the_record() -> None:
    measurement = Measurement("llama/wide", "np1", "loaded", caches=(Cache(256, 2, 1, 0.5, 0.5),), model={"CPU": 1.5})
    assert Measurement.from_json(measurement.to_json()) == measurement


def test_differences_name_what_changed() -> None:
    old = Measurement("llama/wide", "np1", "loaded", n_ctx=256)
    new = Measurement("llama/wide", "np1", "loaded", n_ctx=512)
    gone = Measurement("llama/wide", "np3", "loaded")
    assert list(matrix.differences([old], [old])) == []
    assert list(matrix.differences([old, gone], [new])) == ["llama/wide np1: n_ctx: 256 -> 512", "llama/wide np3: gone"]
    assert list(matrix.differences([], [new])) == ["llama/wide np1: new"]


def test_tensors_are_kept_by_runs_of_layers() -> None:
    tensors = [(f"blk.{layer}.attn_q.weight", [64, 64]) for layer in (0, 1, 2, 5)]
    tensors += [("output.weight", [64, 8]), ("blk.0.attn_q.scale", [1])]
    packed = pack_tensors("llama/wide", tensors)
    assert packed == {"blk.0-2,5.attn_q.weight": [64, 64], "output.weight": [64, 8]}
    assert sorted((tensor.name, list(tensor.shape)) for tensor in unpack_tensors(packed)) == sorted(tensors[:-1])


def test_a_model_is_a_header_and_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [Tensor("token_embd.weight", (256, 1 << 20), "Q4_K"), Tensor("output_norm.weight", (256,))]
    write_model(path, {"general.architecture": "llama", "llama.block_count": 2}, tensors)
    read = gguf.GGUFReader(path)
    assert [(tensor.name, list(tensor.shape), tensor.tensor_type.name) for tensor in read.tensors] == [
        ("token_embd.weight", [256, 1 << 20], "Q4_K"),
        ("output_norm.weight", [256], "F32"),
    ]
    assert path.stat().st_size > 144 << 20
    assert path.stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("name", ["llama/wide", "llama+experts/upstream", "qwen35moe+experts+nextn/wide"])
def test_a_fixture_is_known_by_its_name(name: str) -> None:
    assert fixture(name).name == name
    assert name in [one.name for one in fixtures_of(fixture(name).architecture)]


def test_fixtures_have_upstreams_dimensions() -> None:
    assert dimensions("qwen3", UPSTREAM).kv_heads == 1
    assert dimensions("gemma3n", UPSTREAM).layers == 22
    assert dimensions("deepseek2", WIDE).kv_heads == 1
    keys = metadata(fixture("glm4moe+experts+nextn/wide"))
    assert keys["glm4moe.block_count"] == WIDE.layers + 1
    assert keys["glm4moe.nextn_predict_layers"] == 1


def test_everything_on_record_can_be_made() -> None:
    measured = {one.subject for one in matrix.recorded()}
    assert measured == set(recorded_subjects())
    assert all(recorded_tensors("tiny").values())


def test_drawn_dimensions_depend_on_name_and_seed_alone() -> None:
    assert fixture("llama+experts/2") == fixture("llama+experts/2")
    sizes = {fixture(f"{name}/{number}").size for name in ("llama", "qwen3", "llama+experts") for number in "123"}
    assert len(sizes) == 9
    assert metadata(fixture("qwen35/1")) == metadata(fixture("qwen35/1"))


def test_every_architecture_that_can_has_drawn_fixtures_on_record() -> None:
    drawn = {subject.partition("/")[0].partition("+")[0] for subject in recorded_subjects() if subject[-2:] == "/1"}
    fixed = {
        subject.partition("/")[0].partition("+")[0] for subject in recorded_subjects() if subject.endswith("/upstream")
    }
    assert fixed - drawn == {"plm", "rwkv6qwen2", "t5", "wavtokenizer-dec"}
    assert all(len(matrix.settings_of(subject)) >= 4 for subject in recorded_subjects() if subject[-2:] == "/1")
