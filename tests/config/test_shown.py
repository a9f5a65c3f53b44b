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
  c:
    source: command
    command: [docker, run, -e, HF_TOKEN=s3cret, vllm, --api-key, s3cret, --port, "${PORT}"]
    stop: [sh, -c, "curl --oauth2-bearer-token s3cret -H 'X-Api-Key:s3cret' http://me:s3cret@host/"]
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
        (["--a-key=x"], [f"--a-key={HIDDEN}"]),
        (
            ["run", "-e", "A_TOKEN=x", "-v", "/keys:/keys", "B=x"],
            ["run", "-e", f"A_TOKEN={HIDDEN}", "-v", "/keys:/keys", "B=x"],
        ),
        (["-H", "Authorization: Bearer x"], ["-H", f"Authorization: {HIDDEN}"]),
        (["-H", "X-Api-Key:x", "http://a"], ["-H", f"X-Api-Key:{HIDDEN}", "http://a"]),
        (
            ["sh", "-c", "A_TOKEN=x serve --api-key x --port 1"],
            ["sh", "-c", f"A_TOKEN={HIDDEN} serve --api-key {HIDDEN} --port 1"],
        ),
    ],
)
def test_arguments(given: list[str], expected: list[str]) -> None:
    assert shown_arguments(given) == expected
