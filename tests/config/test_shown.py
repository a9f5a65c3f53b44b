"""What `config show` prints can be sent to somebody who helps: no secret is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.config.load import load
from supervisor.config.shown import shown
from supervisor.core.text.secrets import HIDDEN, shown_arguments

SECRETS = """
hub: {token: s3cret-token, endpoint: "https://me:s3cret@hub.example/x"}
server: {api_keys: [s3cret-key], tracing: {endpoint: "https://me:s3cret@collector.example/x"}}
defaults: {env: {MY_PAT: s3cret, HTTPS_PROXY: "http://me:s3cret@proxy:3128", PLAIN: seen}}
models:
  m:
    source: demo
    filters: {set: {metadata: {at: ["http://me:s3cret@host/"]}}}
    env: {HTTP_AUTH: s3cret, SESSION_COOKIE: s3cret, PGPASS: s3cret, HF_TOKEN: s3cret}
    extra_args: [--some-token, s3cret, --other-key=s3cret, --seen, seen, --url, "http://me:s3cret@host/"]
"""


def test_no_secret_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.yaml"
    path.write_text(SECRETS)
    values: dict[str, Any] = {
        one.key: one.value for one in shown(load(path, {}), {"SUPERVISOR_API_KEY": "s3cret-too"}, everything=True)
    }
    assert "s3cret" not in str(values)
    assert values["hub.token"] == HIDDEN
    assert values["server.tracing"] == {"endpoint": "https://***@collector.example/x"}
    assert values["models.m.filters"] == {"set": {"metadata": {"at": ["http://***@host/"]}}, "strip": []}
    assert values["models.m.env"]["PLAIN"] == "seen"
    assert values["models.m.extra_args"][3:5] == ["--seen", "seen"]


def test_a_token_that_is_not_there_is_not_hidden(tmp_path: Path) -> None:
    assert {one.key: one.value for one in shown(load(None, {}), {})}["hub.token"] is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--a-key", "--b", "x"], ["--a-key", "--b", "x"]),
        (["--a-key", "x", "y"], ["--a-key", HIDDEN, "y"]),
        (["x", "--a-key"], ["x", "--a-key"]),
    ],
)
def test_arguments(given: list[str], expected: list[str]) -> None:
    assert shown_arguments(given) == expected
