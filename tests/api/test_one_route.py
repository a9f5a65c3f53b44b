"""To relay another path is one row in `core/routes.py`: a scratch one is served, shown and answered for everywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.api.schema import Documented
from supervisor.core.routes import ASKED, ROUTES, SERVED, UPSTREAM, api_of, kind_of, route_of
from supervisor.core.stream.apis import ANTHROPIC, OPENAI, RESPONSES

ROOT = Path(__file__).parents[2]
ROW = (
    """    Route("/v1/scratch", "Scratch a thing.", also=("/scratch",), api=ANTHROPIC, kind="raw", takes=_PROMPT),\n"""
)
SCRIPT = """
import json
from supervisor.api.app import framework
from supervisor.core.routes import api_of, kind_of, route_of
from supervisor.core.stream.apis import ANTHROPIC
from supervisor.core.stream.outgoing import outgoing_request
from supervisor.proxy.relay import relay_endpoints

operation = framework(None).openapi()["paths"]["/v1/scratch"]["post"]
print(json.dumps({
    "endpoint": "/v1/scratch" in relay_endpoints(None),
    "waits": route_of("/v1/scratch").generates,
    "summary": operation["summary"],
    "needs": operation["requestBody"]["content"]["application/json"]["schema"]["required"],
    "streams": "text/event-stream" in operation["responses"]["200"]["content"],
    "error": operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"],
    "upstream": api_of("/upstream/m/scratch") is ANTHROPIC,
    "folded": outgoing_request(kind_of("/scratch"), {}).new_fold() is not None,
}))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A copy of the program with one row more, as somebody would add it."""
    shutil.copytree(ROOT / "supervisor", tmp_path / "supervisor", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "supervisor/core/routes.py"
    text = table.read_text(encoding="utf-8")
    table.write_text(text.replace("] = (\n", f"] = (\n{ROW}", 1), encoding="utf-8")
    return tmp_path


def test_one_row_is_enough(program: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(program)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=program, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "endpoint": True,
        "waits": True,
        "summary": "Scratch a thing.",
        "needs": ["prompt"],
        "streams": True,
        "error": "#/components/schemas/AnthropicError",
        "upstream": True,
        "folded": True,
    }


def test_no_path_stands_in_two_rows() -> None:
    names = [name for route in ROUTES for name in route.names] + [row.path for row in ASKED]
    assert len(names) == len(set(names))


def test_a_path_is_found_in_all_its_spellings() -> None:
    for route in ROUTES:
        for name in route.names:
            assert route_of(name) is route
            assert kind_of(name) == route.kind
            assert api_of(f"{UPSTREAM}owner/m{name}") is route.api
    assert route_of("/v1/nowhere") is None
    assert kind_of("/v1/nowhere") is None


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/messages", ANTHROPIC),
        ("/v1/messages/count_tokens", ANTHROPIC),
        ("/v1/responses", RESPONSES),
        ("/v1/chat/completions", OPENAI),
        ("/nowhere", OPENAI),
        ("/api/v1/messages", OPENAI),
    ],
)
def test_errors_have_the_form_of_the_path(path: str, api: object) -> None:
    assert api_of(path) is api


@pytest.mark.parametrize("path", SERVED)
def test_the_schema_says_what_the_row_says(path: str) -> None:
    app = Documented((), title="t", version="1", description="d")
    operation = app.openapi()["paths"][path]["post"]
    route = SERVED[path]
    kind = "multipart/form-data" if route.is_form else "application/json"
    body = operation["requestBody"]["content"][kind]["schema"]
    assert route.summary
    assert operation["summary"] == route.summary
    assert body["required"] == list(route.takes)
    assert route.takes
    assert "model" in body["properties"]
    assert all(body["properties"][name] == schema for name, schema in route.takes.items())
    assert ("stream" in body["properties"]) == route.generates
    assert ("tool_calls" in body["properties"]) == route.finds_calls
