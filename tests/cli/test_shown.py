"""Whole pages that verbs print, and what they ask the daemon: run within this process, as nothing has to be started."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from supervisor.cli.main import main
from tests.fakes.fake_daemon import FakeDaemon, model

Json = dict[str, Any]
Run: TypeAlias = Callable[..., tuple[int, list[str], str]]
NOW = 1_800_000_000.0  # the time of every test
HOUR = 3600.0
GIB = 1 << 30


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with FakeDaemon() as fake:
        yield fake


@pytest.fixture
def run(daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line. Returns its exit code, the lines of stdout without blanks at their ends, and stderr."""
    for name, value in {"HOME": tmp_path, "SUPERVISOR_HOME": tmp_path / "home", "SUPERVISOR_URL": daemon.url}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(time, "time", lambda: NOW)

    def ran(*arguments: str) -> tuple[int, list[str], str]:
        code = main(arguments)
        shown = capsys.readouterr()
        return code, [line.rstrip() for line in shown.out.splitlines()], shown.err

    return ran


def asked(daemon: FakeDaemon) -> list[tuple[str, str, Json]]:
    """What was asked beside the status, since the last time."""
    found = [one for one in daemon.requests if one[1] != "/api/v1/status"]
    daemon.requests.clear()
    return found


def columns(line: str) -> list[str]:
    return [part.strip() for part in line.split("  ") if part.strip()]


KEY: Json = {
    "name": "a/b", "state": "active", "scopes": ["infer", "read"], "models": [], "expires_at": None,
    "requests_per_minute": None, "tokens_per_minute": None, "token_budget": None,
    "usage": {"requests": 3, "prompt_tokens": 40, "completion_tokens": 2},
}  # fmt: skip
LIMITED = KEY | {
    "name": "late", "models": ["m*", "n"], "expires_at": NOW - 5 * HOUR, "requests_per_minute": 1,
    "tokens_per_minute": 20, "token_budget": 0,
}  # fmt: skip


def test_keys(run: Run, daemon: FakeDaemon) -> None:
    path = "/api/v1/keys"
    daemon.answers[path] = {"keys": [KEY, LIMITED, KEY | {"name": "soon", "expires_at": NOW + 5 * HOUR + 99}]}
    code, (head, *rows), _ = run("keys", "list")
    assert code == 0
    assert columns(head) == ["NAME", "STATE", "SCOPES", "MODELS", "EXPIRES", "REQUESTS", "TOKENS", "LIMITS"]
    assert [columns(row) for row in rows] == [
        ["a/b", "active", "infer,read", "all", "never", "3", "42", "-"],
        ["late", "active", "infer,read", "m*,n", "5h ago", "3", "42", "1 requests/min, 20 tokens/min, 0 tokens"],
        ["soon", "active", "infer,read", "all", "in 5h", "3", "42", "-"],
    ]
    assert json.loads(run("keys", "list", "--json")[1][0]) == daemon.answers[path]
    daemon.answers[path] = {"keys": []}
    assert run("keys", "list") == (0, ["no key was added; `keys add` adds one"], "")
    asked(daemon)
    daemon.answers[path] = {"key": "sk-1", "name": "x"}
    kept = "This key is not shown again: keep it now. "
    kept += "Clients send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.\n"
    assert run("keys", "add", "x") == (0, ["sk-1"], kept)
    plain = {"name": "x", "scopes": ["infer"], "models": [], "expires_at": None, "requests_per_minute": None,
             "tokens_per_minute": None, "token_budget": None}  # fmt: skip
    assert asked(daemon) == [("POST", path, plain)]
    told = ["--scope", "read", "--scope", "manage", "--model", "a", "--model", "b*", "--requests-per-minute", "1"]
    told += ["--tokens-per-minute", "2", "--token-budget", "3", "--expires", "2h", "--json"]
    assert json.loads(run("keys", "add", "x", *told)[1][0]) == daemon.answers[path]
    ((_, _, body),) = asked(daemon)
    assert 2 * HOUR - 60 < body.pop("expires_at") - NOW < 2 * HOUR + 600
    assert body == {"name": "x", "scopes": ["read", "manage"], "models": ["a", "b*"], "requests_per_minute": 1,
                    "tokens_per_minute": 2, "token_budget": 3}  # fmt: skip
    daemon.answers[f"{path}/a%2Fb/rotate"] = {"key": "sk-2"}
    daemon.answers[f"{path}/a%2Fb"] = {"name": "a/b"}
    assert run("keys", "rotate", "a/b") == (0, ["sk-2"], kept)
    assert run("keys", "revoke", "a/b") == (0, ["a/b is revoked"], "")
    assert json.loads(run("keys", "revoke", "a/b", "--json")[1][0]) == {"name": "a/b"}
    assert [one[:2] for one in asked(daemon)][:2] == [("POST", f"{path}/a%2Fb/rotate"), ("DELETE", f"{path}/a%2Fb")]


REQUEST: Json = {
    "at": NOW - 3 * HOUR, "model": "m", "path": "/v1", "key": None, "status": 200, "code": None, "seconds": 1.5,
    "queued": 0.0, "first": None, "prompt_tokens": 7, "completion_tokens": None, "tokens_per_second": 9.46,
}  # fmt: skip
LOAD: Json = {"at": NOW - 3 * HOUR, "model": "m", "engine": 4, "event": "engine_ready", "seconds": 2.0, "code": None,
              "reason": None}  # fmt: skip


def test_history(run: Run, daemon: FakeDaemon) -> None:
    path = "/api/v1/history"
    daemon.answers[path] = {"requests": [REQUEST, REQUEST | {"tokens_per_second": None, "key": "k"}], "next": None}
    _, (head, *rows), _ = run("history")
    titles = "AGE MODEL PATH KEY STATUS CODE SECONDS QUEUED FIRST PROMPT WRITTEN T/S"
    assert head.split() == titles.split()
    assert [row.split() for row in rows] == [
        ["3h", "m", "/v1", "-", "200", "-", "1.500", "0.000", "-", "7", "-", "9.5"],
        ["3h", "m", "/v1", "k", "200", "-", "1.500", "0.000", "-", "7", "-", "-"],
    ]
    assert asked(daemon) == [("GET", f"{path}?limit=20", {})]
    assert json.loads(run("history", "--json", "-n", "2")[1][0])["requests"] == daemon.answers[path]["requests"]
    run("history", "--model", "m", "--key", "k", "--code", "c", "--lines", "1")
    assert [one[1] for one in asked(daemon)] == [f"{path}?limit=2", f"{path}?model=m&key=k&code=c&limit=1"]
    run("history", "--since", "2h")
    ((_, found, _),) = asked(daemon)
    assert float(found.partition("since=")[2].partition("&")[0]) == NOW - 2 * HOUR
    daemon.answers[path] = {"requests": [], "next": None}
    assert run("history")[1] == ["no request has ended so"]


def test_history_of_engines_and_pages(run: Run, daemon: FakeDaemon) -> None:
    path = "/api/v1/history/loads"
    daemon.answers[path] = {"loads": [LOAD, LOAD | {"event": "failed", "seconds": None, "code": "x", "reason": "y"}],
                            "next": 5}  # fmt: skip
    _, (head, *rows), _ = run("history", "--loads", "-n", "3")
    assert head.split() == ["AGE", "MODEL", "ENGINE", "EVENT", "SECONDS", "CODE", "REASON"]
    first = ["3h", "m", "4", "ready", "2.000", "-", "-"]
    assert [row.split() for row in rows] == [first, ["3h", "m", "4", "failed", "-", "x", "y"]] * 2
    assert [one[1] for one in asked(daemon)] == [f"{path}?limit=3", f"{path}?before=5&limit=1"]
    daemon.answers[path] = {"loads": [], "next": None}
    assert run("history", "--loads")[1] == ["nothing has happened to an engine"]
    for wrong in (("--key", "k"), ("--code", "c"), ("--since", "1h")):
        code, _, told = run("history", "--loads", *wrong)
        assert (code, "--loads has no filter but --model." in told) == (2, True)
    daemon.answers["/api/v1/history/export"] = {"a": 1}
    asked(daemon)
    assert run("history", "--export", "jsonl", "--model", "m") == (0, ['{"a": 1}'], "")
    assert asked(daemon) == [("GET", "/api/v1/history/export?model=m&format=jsonl", {})]


CAPTURE: Json = {
    "id": 3, "at": NOW - 3 * HOUR, "model": "m", "path": "/v1", "key": None, "status": 200, "code": None,
    "size_bytes": 2048, "request_left_out": ["images"], "answer_left_out": ["end"],
}  # fmt: skip


def test_captures(run: Run, daemon: FakeDaemon) -> None:
    path = "/api/v1/captures"
    daemon.answers[path] = {
        "on": True,
        "captures": [CAPTURE, CAPTURE | {"request_left_out": [], "answer_left_out": []}],
    }
    _, (head, *rows), _ = run("captures", "list", "--model", "m")
    assert columns(head) == ["ID", "AGE", "MODEL", "PATH", "KEY", "STATUS", "CODE", "SIZE", "LEFT OUT"]
    assert columns(rows[0])[-2:] == ["2.0 KiB", "images of the request, end of the answer"]
    assert columns(rows[1]) == ["3", "3h", "m", "/v1", "-", "200", "-", "2.0 KiB", "-"]
    run("captures", "list", "--key", "k", "-n", "5000")
    assert [one[1] for one in asked(daemon)] == [f"{path}?model=m&limit=20", f"{path}?key=k&limit=1000"]
    daemon.answers[path] = {"on": True, "captures": []}
    assert run("captures", "list")[1] == ["no request was captured"]
    daemon.answers[path] = {"on": False, "captures": []}
    off = "nothing is captured: `capture` of the configuration names no model and no key"
    assert run("captures", "list")[1] == [off]
    daemon.answers[f"{path}/3"] = CAPTURE | {"headers": {"é": "1"}, "request": "text", "answer": [1]}
    shown = run("captures", "show", "3")[1]
    assert shown[2:] == ["", "headers:", "{", '  "é": "1"', "}", "", "request:", "text", "", "answer:", "[", "  1", "]"]
    asked(daemon)
    daemon.answers[f"{path}/3/replay"] = {"a": 1}
    assert run("captures", "replay", "3") == (0, ["{", '  "a": 1', "}"], "")
    assert run("captures", "replay", "3", "--model", "n", "--json") == (0, ['{"a": 1}'], "")
    bodies = [{"model": None, "stream": False}, {"model": "n", "stream": False}]
    assert asked(daemon) == [("POST", f"{path}/3/replay", body) for body in bodies]
    daemon.answers[f"{path}/3"] = daemon.answers[path] = {"deleted": 2}
    assert run("captures", "forget") == run("captures", "forget", "3") == (0, [], "2 deleted\n")
    assert run("captures", "forget", "--json") == (0, ['{"deleted": 2}'], "")
    assert [one[:2] for one in asked(daemon)][:2] == [("DELETE", path), ("DELETE", f"{path}/3")]
    daemon.answers[f"{path}/export"] = {"id": 3}
    assert run("captures", "export") == (0, ['{"id": 3}'], "")


def part(name: str, **sizes: int) -> Json:
    names = ("weights", "kv", "recurrent", "compute", "output", "projector", "draft", "reserve", "total", "left")
    return {"name": name, "layers": 0, **{f"{one}_bytes": 0 for one in names}, **sizes}


PLAN: Json = {
    "fits": True, "model": "m",
    "parts": [part("CUDA0", layers=33, weights_bytes=4 * GIB, kv_bytes=512 << 20, total_bytes=5 * GIB, left_bytes=GIB),
              part("CPU", output_bytes=3 << 20, total_bytes=3 << 20, left_bytes=60 * GIB)],
    "ctx_size": 8192, "request_ctx": 4096, "cache_type_k": "f16", "cache_type_v": "q8_0", "wanted_ctx": 32768,
    "fitting_ctx": 65536, "native_ctx": 131072, "speed": None, "evict": [3], "evict_models": ["old"],
    "why": ["One.", "Two."], "env": {"A": "1 2"}, "arguments": ["-c", "8192"], "problems": [],
}  # fmt: skip
SPEED: Json = {"prompt_tokens": 2048, "prefill_tokens_per_second": 100.0, "first_token_seconds": 20.5,
               "decode_tokens_per_second": {"0": 38.0, "4096": 21.0}, "from": "measured"}  # fmt: skip


def test_a_plan(run: Run, daemon: FakeDaemon) -> None:
    daemon.answers["/api/v1/plan"] = PLAN
    code, lines, told = run("plan", "m", "-c", "8192")
    assert (code, told) == (0, "")
    assert lines[0] == "m on CUDA0"
    assert [columns(line) for line in lines[1:4]] == [
        ["DEVICE", "LAYERS", "WEIGHTS", "KV", "OUTPUT", "TOTAL", "LEFT"],
        ["CUDA0", "33", "4.0 GiB", "512 MiB", "-", "5.0 GiB", "1.0 GiB"],
        ["CPU", "-", "-", "-", "3.0 MiB", "3.0 MiB", "60.0 GiB"],
    ]
    assert lines[4:] == [
        "",
        "context: 4,096 tokens per request (8,192 for all slots), KV cache in f16 and q8_0; wanted 32,768, at most "
        "65,536 on these devices, the model's own 131,072",
        "must leave first: engine 3 (old)",
        "- One.",
        "- Two.",
        "",
        "'A=1 2' llama-server -c 8192",
    ]
    assert asked(daemon)[-1] == ("POST", "/api/v1/plan", {"target": "m", "options": {"ctx_size": 8192}})
    daemon.answers["/api/v1/plan"] = PLAN | {"ctx_size": 4096, "cache_type_v": "f16", "speed": SPEED,
                                             "problems": [{"probe": "rpc", "message": "No."}]}  # fmt: skip
    _, lines, told = run("plan", "m")
    assert lines[5].startswith("context: 4,096 tokens per request, KV cache in f16; wanted")
    first = "first token of a prompt of 2,048 after ≈ 20.5 s; by what this machine was measured to do"
    assert lines[6] == f"speed: ≈ 38 t/s (21 behind 4,096 tokens), {first}"
    assert told == "rpc: No.\n"
    assert asked(daemon)[-1][2]["options"] is None
    assert json.loads(run("plan", "m", "--json")[1][0]) == daemon.answers["/api/v1/plan"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"from": "learned"}, "after ≈ 20.5 s; by what this model was here before"),
        ({"from": "published"}, "; a first guess from published figures: `bench` measures this machine"),
        ({"first_token_seconds": 60.0}, "after ≈ 60s; "),
        ({"first_token_seconds": 59.96}, "after ≈ 60.0 s; "),
        ({"decode_tokens_per_second": {"0": 38.0}}, "speed: ≈ 38 t/s, first token"),
    ],
)
def test_a_foretold_speed(run: Run, daemon: FakeDaemon, more: Json, told: str) -> None:
    daemon.answers["/api/v1/plan"] = PLAN | {"speed": SPEED | more}
    assert told in run("plan", "m")[1][6]


def test_a_plan_that_does_not_fit(run: Run, daemon: FakeDaemon) -> None:
    refused: Json = {"fits": False, "message": "No.", "hints": [], "problems": []}
    daemon.answers["/api/v1/plan"] = refused
    assert run("plan", "m") == (4, ["No.", "- No smaller context, cache type or quantisation alone would help."], "")
    daemon.answers["/api/v1/plan"] = refused | {"hints": ["Less."]}
    assert run("plan", "m")[1] == ["No.", "- Less."]


def finding(run: Run, name: str) -> Json:
    checks: list[Json] = json.loads(run("doctor", "--json")[1][0])["checks"]
    (found,) = [one for one in checks if one["name"] == name]
    return found


@pytest.mark.parametrize(
    ("config", "state", "told", "fix"),
    [
        ({}, "ok", "answers at {url} (pid {pid})", None),
        ({"error": {"message": "Bad."}}, "warn", "it keeps its old configuration: Bad.", "correct the file, then"),
        ({"restart_needed": ["a", "b"]}, "warn", "a, b: changed; takes effect at the next start of the daemon", "stop"),
    ],
)
def test_the_doctor_of_a_daemon(
    run: Run, daemon: FakeDaemon, config: Json, state: str, told: str, fix: str | None
) -> None:
    daemon.config |= config
    found = finding(run, "daemon")
    assert (found["state"], found["message"]) == (state, told.format(url=daemon.url, pid=daemon.pid))
    assert (found["fix"] is None) if fix is None else (fix in found["fix"])


def test_the_doctor_of_another_version(run: Run, daemon: FakeDaemon) -> None:
    daemon.version = "9.9"
    found = finding(run, "daemon")
    assert found["state"] == "fail"
    assert found["message"].startswith("version 9.9 runs, this command is ")
    assert "upgrade` has this version take over" in found["fix"]


def test_pinned_models_and_unloaded_ones(run: Run, daemon: FakeDaemon) -> None:
    daemon.models["m"] = model("m", "ready")
    run("pin", "m")
    assert daemon.models["m"]["pinned"]
    run("unpin", "m")
    assert not daemon.models["m"]["pinned"]
    code, lines, _ = run("unload", "m")
    assert (code, "m" in lines[0]) == (0, True)
    assert daemon.models["m"]["state"] == "unloaded"
