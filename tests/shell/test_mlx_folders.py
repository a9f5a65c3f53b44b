"""Folders with models for MLX: what is read of them, what is refused, and what `inspect` and `estimate` say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.cli.main import main
from supervisor.core.models.registry import Registry
from supervisor.engines.kinds import KINDS, for_format
from supervisor.errors import (
    EstimateRefused,
    InvalidRequest,
    ModelConfigError,
    ModelFileError,
    NotSupportedByEngine,
    SafetensorsError,
    ShardMissing,
)
from supervisor.files.mlx_folder import is_mlx_folder, read_mlx
from supervisor.models.targets import new_entry
from supervisor.planning.mlx_estimates import mlx_estimates_json, mlx_settings
from tests.support.safetensors import SMALL_LLAMA, safetensors, small_files, write_small


def test_a_folder_is_read(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    assert is_mlx_folder(folder)
    found = read_mlx(folder)
    assert found.facts.weights_bytes == 2 * 128 * 64 * 2
    assert found.facts.chat_template
    assert found.facts.n_ctx_train == 4096
    assert found.size_bytes == len(small_files()["model.safetensors"])


def test_gguf_beside_it_comes_first(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "m.gguf").write_bytes(b"GGUF")
    assert not is_mlx_folder(folder)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    with pytest.raises(ShardMissing, match="model-00002-of-00002"):
        read_mlx(folder)


def test_what_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(safetensors({"a": ("F32", (4,))})[:-1])
    with pytest.raises(SafetensorsError, match=r"model\.safetensors"):
        read_mlx(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"no model\*\.safetensors"):
        read_mlx(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelConfigError):
        read_mlx(folder)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_mlx(folder)


def test_inspect_and_estimate_tell_the_same_under_the_keys_of_gguf(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_small(tmp_path / "m"))
    assert main(["inspect", folder, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["estimate", folder, "-c", "256,512", "-np", "2", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert facts["format"] == one["format"] == "mlx"
    assert facts["arch"] == one["arch"] == "llama"
    assert facts["tensor_bytes"] == one["weights_bytes"] == 2 * 128 * 64 * 2
    assert (one["n_ctx_seq"], one["n_seq"], one["n_ctx"]) == (256, 2, 512)
    assert two["kv_bytes"] == 2 * one["kv_bytes"] == 2 * 2 * 131072
    parts = ("weights", "kv", "recurrent", "compute", "prompt_cache", "base")
    assert one["total_bytes"] == sum(one[f"{part}_bytes"] for part in parts)


def test_people_get_a_table_and_a_note_of_an_unknown_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_small(tmp_path / "m", {**SMALL_LLAMA, "model_type": "new"}))
    assert main(["inspect", folder]) == 0
    assert "not known here" in capsys.readouterr().out
    assert main(["estimate", folder]) == 0
    told = capsys.readouterr().out
    assert "weights" in told
    assert "not known here" in told


def test_options_that_mean_nothing_are_refused_by_name(tmp_path: Path) -> None:
    facts = read_mlx(write_small(tmp_path / "m")).facts
    for given in ({"n_gpu_layers": 1}, {"cache_type_k": "q5_0"}, {"cache_type_k": "q8_0"}, {"parallel": 0}):
        with pytest.raises(InvalidRequest):
            mlx_settings(facts, given, fused=False)
    quantised = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    with pytest.raises(EstimateRefused) as refused:  # heads of 32 numbers, groups of 64
        mlx_settings(facts, quantised, fused=False)
    assert refused.value.code == "kv_bits_not_supported"
    with pytest.raises(InvalidRequest):
        mlx_estimates_json(facts, {"ctx_size": [1] * 65}, fused=False)


def test_a_model_of_a_format_gets_its_kind_of_engine_or_is_refused() -> None:
    entry = new_entry(Registry([]), "m", None)
    assert for_format(entry, "mlx", {"mlx": KINDS["llama"]}).kind == "mlx"
    with pytest.raises(NotSupportedByEngine, match="model for MLX"):
        for_format(entry, "mlx", {})
