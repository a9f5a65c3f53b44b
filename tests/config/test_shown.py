"""What `config show` shows of variables, and what it hides."""

from __future__ import annotations

from pathlib import Path

from supervisor.config.load import load
from supervisor.config.shown import HIDDEN, shown

VARIABLES = """
models:
  a:
    file: x.gguf
    env: {OMP_NUM_THREADS: '4', AWS_SECRET_ACCESS: s, hf_token: t, MY_KEY: k, DB_PASSWORD: p}
"""


def test_values_are_hidden_where_their_name_sounds_secret(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(VARIABLES)
    [env] = [one.value for one in shown(load(path, {}), {}) if one.key == "models.a.env"]
    secret = dict.fromkeys(("AWS_SECRET_ACCESS", "hf_token", "MY_KEY", "DB_PASSWORD"), HIDDEN)
    assert env == {"OMP_NUM_THREADS": "4", **secret}
