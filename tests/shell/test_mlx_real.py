"""Small models of many kinds, made by mlx-lm itself: we say of their files what it says of its memory, to the byte."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from supervisor.core.mlx.memory import MlxSettings, cache_bytes
from supervisor.files.mlx_folder import read_mlx
from tests.support import mlx_models
from tests.support.mlx import require_mlx


@pytest.mark.full
def test_weights_and_caches_are_those_of_mlx_to_the_byte(tmp_path: Path) -> None:
    made = subprocess.run(
        [str(require_mlx()), "-P", str(mlx_models.__file__), str(tmp_path)], check=True, capture_output=True, text=True
    )
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert len(rows) == len(mlx_models.CONFIGS) >= 12
    for row in rows:
        facts = read_mlx(tmp_path / row["folder"]).facts
        settings = {
            bits: MlxSettings(mlx_models.TOKENS, kv_bits=int(bits) or None, prefill_step=mlx_models.STEP)
            for bits in row["caches"]
        }
        ours = {bits: cache_bytes(facts, one) for bits, one in settings.items()}
        assert (row["folder"], facts.known, facts.weights_bytes, ours) == (
            row["folder"],
            True,
            row["weights"],
            row["caches"],
        )
