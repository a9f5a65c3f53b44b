"""`POST /api/v1/plan` and `POST /api/v1/estimate`: what would be, without loading anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.evidence.subjects import write_subject
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    settings = {"models": {"talker": {"file": str(talker), "ctx_size": 4096, "parallel": 1}}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        yield running


def plan(daemon: RunningDaemon, target: str, **more: Any) -> dict[str, Any]:
    answer = daemon.http.post("/api/v1/plan", json={"target": target, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refusal(daemon: RunningDaemon, path: str, body: Any) -> tuple[int, str]:
    answer = daemon.http.post(path, json=body)
    return answer.status_code, answer.json()["error"]["code"]


def test_a_plan_says_all_and_loads_nothing(daemon: RunningDaemon, talker: Path) -> None:
    found = plan(daemon, "talker")
    assert (found["fits"], found["ctx_size"], found["request_ctx"]) == (True, 4096, 4096)
    assert found["arguments"][:2] == ["-m", str(talker)]
    assert found["evict"] == found["evict_models"] == found["problems"] == []
    assert daemon.model("talker")["state"] == "unloaded"
    other = plan(daemon, "talker", options={"ctx_size": 8192})
    assert other["ctx_size"] == 8192
    assert other["parts"][-1]["kv_bytes"] == 2 * found["parts"][-1]["kv_bytes"]
    assert plan(daemon, "talker")["ctx_size"] == 4096, "what was asked is not remembered"


def test_a_path_needs_no_entry(daemon: RunningDaemon, tmp_path: Path) -> None:
    model = write_subject("llama/wide", tmp_path)
    assert plan(daemon, str(model), id="mine")["model"] == "mine"
    assert [one["id"] for one in daemon.http.get("/api/v1/models").json()["models"]] == ["talker", "demo"]


def test_what_does_not_fit_is_an_answer(daemon: RunningDaemon, tmp_path: Path) -> None:
    found = plan(daemon, str(write_subject("kimi-k2", tmp_path)))
    assert (found["fits"], found["later"], found["blocking_models"]) == (False, False, [])
    (short,) = found["shortages"]
    assert short["missing_bytes"] == short["needed_bytes"] - short["usable_bytes"] > 0
    assert "missing" in found["message"]


def test_wrong_plans_are_refused(daemon: RunningDaemon) -> None:
    path = "/api/v1/plan"
    assert refusal(daemon, path, {"target": "nobody"}) == (404, "model_not_found")
    assert refusal(daemon, path, {"target": "/absent.gguf"}) == (422, "model_file_invalid")
    assert refusal(daemon, path, {"target": "demo", "options": {"device": ["CUDA7"]}}) == (422, "unknown_device")
    assert refusal(daemon, path, {"target": "demo", "options": {"nonsense": 1}}) == (400, "invalid_request")
    assert refusal(daemon, path, {"target": "demo", "options": {"extra_args": ["--nonsense"]}}) == (
        *(400, "option_not_supported"),
    )
    assert refusal(daemon, path, {}) == (400, "invalid_request")
    misspelt = daemon.http.post(path, json={"target": "demo", "options": {"ctx_sise": 1}}).json()["error"]
    assert misspelt["message"] == "options.ctx_sise: unknown key; did you mean ctx_size?"
    form = daemon.http.post(path, content='{"target": "demo"}', headers={"content-type": "text/plain"}).json()["error"]
    assert "Content-Type: application/json" in form["message"]
    assert daemon.http.post(path, json={}).json()["error"]["message"] == "target: is missing"
    broken = daemon.http.post(path, content="{x", headers={"content-type": "application/json"}).json()["error"]
    assert broken["message"].startswith("The request body is not valid JSON: ")


def test_a_load_that_no_memory_would_help_says_so(daemon: RunningDaemon) -> None:
    load = {"target": "demo", "options": {"device": ["CUDA7"]}}
    assert refusal(daemon, "/api/v1/models/load", load) == (503, "launch_option_refused")


def test_an_estimate_is_that_of_the_command_line(daemon: RunningDaemon, talker: Path, tmp_path: Path) -> None:
    cli = Cli(tmp_path)

    def estimate(**options: Any) -> Any:
        answer = daemon.http.post("/api/v1/estimate", json={"target": "talker", "options": options})
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert estimate() == cli("estimate", str(talker), "--json").json()
    some = {"parallel": 2, "cache_type_k": "q8_0", "tensor_split": [1, 1]}
    shown = cli("estimate", str(talker), "-c", "4096,8192", "-np", "2", "-ctk", "q8_0", "-ts", "1,1", "--json").json()
    assert estimate(ctx_size=[4096, 8192], **some) == shown
    assert estimate(ctx_size=8192, **some) == shown[1]


def test_wrong_estimates_are_refused(daemon: RunningDaemon) -> None:
    def refused(**options: Any) -> tuple[int, str]:
        return refusal(daemon, "/api/v1/estimate", {"target": "demo", "options": options})

    assert refused(ctx_sise=1) == (400, "invalid_request")
    assert refused(ctx_size="many") == (400, "invalid_request")
    assert refused(ctx_size=[]) == (400, "invalid_request")
    assert refused(ctx_size=[1] * 65) == (400, "invalid_request")
    assert refused(flash_attn="off", cache_type_v="q8_0") == (422, "quantized_v_needs_flash_attention")
    assert refusal(daemon, "/api/v1/estimate", {"target": "nobody"}) == (404, "model_not_found")
