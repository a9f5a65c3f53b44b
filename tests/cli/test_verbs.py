"""What the verbs that talk about models say to the daemon and to the user."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from supervisor.config.settings import ModelOptions
from supervisor.system.paths import places
from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon, chunk, model
from tests.support.patience import PATIENCE


def test_ps_shows_what_is_loaded(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("ps").out == "no model is loaded\nconfiguration: none; the defaults\n"
    daemon.config["path"] = "/etc/supervisor.yaml"
    daemon.models["a"] = model("a", "ready", pid=12, n_ctx=4096, rss_bytes=3 << 20, leases=1)
    daemon.models["long-name"] = model("long-name", "loading", progress=0.5)
    daemon.models["bad"] = model("bad", "failed", error={"code": "model_load_failed", "message": "no", "log_lines": []})
    assert cli("ps").out.splitlines() == [
        "MODEL      STATE                       PID  CONTEXT  MEMORY   BUSY  WAITING  UP  UNTIL",
        "a          ready                       12   4096     3.0 MiB  1     0        -   -",
        "long-name  loading 50%                 -    -        -        0     0        -   -",
        "bad        failed (model_load_failed)  -    -        -        0     0        -   -",
        "configuration: /etc/supervisor.yaml",
    ]
    shown = cli("ps", "--json").json()
    assert [found["id"] for found in shown["models"]] == ["a", "long-name", "bad"]
    assert shown["pid"] == daemon.pid
    daemon.stopping = True
    assert cli("ps").out.splitlines()[-1].startswith("the daemon is stopping")


def test_ps_shows_what_keeps_a_model_and_how_long_it_stays(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models["kept"] = model("kept", "ready", pinned=True, expires_at=None)
    daemon.models["idle"] = model("idle", "ready", pinned=False, expires_at=time.time() + 7 * 3600 + 600)
    daemon.models["late"] = model("late", "ready", pinned=False, expires_at=time.time() - 5)
    rows = {line.split()[0]: line.split()[-1] for line in cli("ps").out.splitlines()}
    assert (rows["kept"], rows["idle"], rows["late"]) == ("pinned", "7h", "0s")


def test_states_have_words_for_people_and_names_for_programs(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models["first"] = model("first", "reserved")
    daemon.models["again"] = model("again", "backoff")
    for verb in ("ps", "models"):
        rows = {line.split()[0]: line for line in cli(verb).out.splitlines() if line.split()}
        assert " starting " in rows["first"], verb
        assert " waiting to retry " in rows["again"], verb
    states = {found["id"]: found["state"] for found in cli("ps", "--json").json()["models"]}
    assert states == {"first": "reserved", "again": "backoff"}


def test_ps_forgets_failures_after_a_while(cli: Cli, daemon: FakeDaemon) -> None:
    error = {"code": "model_load_failed", "message": "no", "log_lines": []}
    daemon.models["fresh"] = model("fresh", "failed", error=error, failed_at=time.time())
    daemon.models["old"] = model("old", "failed", error=error, failed_at=time.time() - 3600)
    assert [one["id"] for one in cli("ps", "--json").json()["models"]] == ["fresh"]
    assert [one["id"] for one in cli("ps", "--all", "--json").json()["models"]] == ["fresh", "old"]


def test_models_shows_all(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models["a"] = model("a", aliases=["b"], path="/m/a.gguf", size_bytes=1000)
    assert cli("models").out.splitlines()[-1].split() == ["a", "b", "unloaded", "file", "1000", "B", "/m/a.gguf"]
    assert [found["id"] for found in cli("models", "--json").json()["models"]] == ["demo", "a"]


def test_load_prints_the_endpoint_and_is_idempotent(cli: Cli, daemon: FakeDaemon) -> None:
    first, again = cli("load", "demo"), cli("load", "demo")
    expected = f"demo is ready (context 4096, loaded in 0.2 s)\n  base URL  {daemon.url}/v1\n  model     demo\n"
    assert (first.code, first.out) == (again.code, again.out) == (0, expected)
    assert first.err.splitlines() == ["demo: loading", "demo: ready"]
    assert again.err.splitlines() == ["demo: ready"]


def test_load_sends_every_launch_option(cli: Cli, daemon: FakeDaemon) -> None:
    cli(
        *("load", "demo", "-c", "0", "-np", "2", "--no-kv-unified", "-b", "64", "-ub", "32", "-ctk", "q8_0"),
        *("-ctv", "q4_0", "-fa", "on", "--swa-full", "-t", "3", "-dev", "CUDA1,CUDA0", "-ngl", "9", "-ts", "3,1.5"),
        *("--cpu-moe", "-ncmoe", "4", "--reasoning", "off", "--chat-template-kwargs", '{"a": [1]}', "--mmproj-auto"),
        *("--spec-type", "ngram-mod,draft-mtp", "--set", "cache-ram=0", "--set", "load_mode=mlock"),
    )
    sent = {
        "ctx_size": 0, "parallel": 2, "kv_unified": False, "batch_size": 64, "ubatch_size": 32, "cache_type_k": "q8_0",
        "cache_type_v": "q4_0", "flash_attn": "on", "swa_full": True, "threads": 3, "device": ["CUDA1", "CUDA0"],
        "n_gpu_layers": 9, "tensor_split": [3.0, 1.5], "cpu_moe": True, "n_cpu_moe": 4, "reasoning": "off",
        "chat_template_kwargs": {"a": [1]}, "mmproj_auto": True, "spec_type": ["ngram-mod", "draft-mtp"],
        "cache_ram": 0, "load_mode": "mlock",
    }  # fmt: skip
    assert daemon.called("/api/v1/models/load") == [{"target": "demo", "options": sent}]
    assert ModelOptions.model_validate(sent).model_fields_set == sent.keys()


@pytest.mark.parametrize(
    "wrong", [["--set", "cache_ram"], ["--set", "=1"], ["-ts", "a,b"], ["--chat-template-kwargs", "[]"], ["-fa", "yes"]]
)
def test_load_refuses_what_it_cannot_read(cli: Cli, wrong: list[str]) -> None:
    assert cli("load", "demo", *wrong).code == 2


def test_without_devices_is_an_empty_list(cli: Cli, daemon: FakeDaemon) -> None:
    cli("load", "demo", "--device", "none")
    assert daemon.called("/api/v1/models/load") == [{"target": "demo", "options": {"device": []}}]


def test_load_may_drop_the_options_of_earlier_loads(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("load", "demo", "--reset-options", "--parallel", "2").code == 0
    assert daemon.called("/api/v1/models/load") == [{"target": "demo", "options": {"parallel": 2}, "reset": True}]


def test_load_sends_paths_and_options(cli: Cli, daemon: FakeDaemon) -> None:
    shown = cli(
        *("load", "sub/x.gguf", "--id", "mine", "--ctx-size", "512", "--parallel", "2", "--embeddings", "on"),
        *("--extra-arg=--no-warmup", "--extra-arg", "1", "--json"),
    )
    assert shown.json()["base_url"] == f"{daemon.url}/v1"
    assert shown.json()["model"] == "mine"
    assert daemon.called("/api/v1/models/load") == [
        {
            "target": str(cli.folder / "sub" / "x.gguf"),
            "id": "mine",
            "options": {"ctx_size": 512, "parallel": 2, "embeddings": "on", "extra_args": ["--no-warmup", "1"]},
        }
    ]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [("demo", "demo"), ("some-id", "some-id"), ("./demo", "{}/demo"), ("X.GGUF", "{}/X.GGUF"), ("~/a", "{}/a")],
)
def test_what_a_target_means(cli: Cli, daemon: FakeDaemon, typed: str, sent: str) -> None:
    assert cli("load", typed).code == 0
    assert daemon.called("/api/v1/models/load") == [{"target": sent.format(cli.folder)}]


def test_a_target_on_a_hub_is_sent_as_it_is_unless_it_is_a_path_that_exists(cli: Cli, daemon: FakeDaemon) -> None:
    targets = ["owner/repo", "owner/repo:Q4_K_M", "owner/repo/f.gguf", "hf://a/b", "https://hf.co/a/b/blob/main/f.gguf"]
    for target in targets:
        assert cli("load", target).code == 0
    (cli.folder / "owner" / "repo").mkdir(parents=True)
    assert cli("load", "owner/repo").code == 0
    sent = [body["target"] for body in daemon.called("/api/v1/models/load")]
    assert sent == [*targets, str(cli.folder / "owner" / "repo")]


def test_models_shows_what_is_on_disk(cli: Cli, daemon: FakeDaemon) -> None:
    one = {"name": "a/b:Q4_0", "store": "hub", "size_bytes": 2048, "used_at": None, "revisions": ["main"]}
    daemon.disk = [{**one, "commit": "0123456789abcdef", "missing": [], "loaded": True, "problem": None}]
    shown = cli("models").out.splitlines()[-1].split()
    assert shown == ["a/b:Q4_0", "hub", "2.0", "KiB", "-", "main", "01234567", "loaded"]
    assert cli("models", "--json").json()["disk"] == daemon.disk


def test_the_variants_to_choose_from_and_remarks_are_shown(cli: Cli, daemon: FakeDaemon) -> None:
    row = {"size_bytes": 1 << 30, "fits": True, "well": True, "note": "CUDA0, context 4096"}
    daemon.remarks = {
        "note": "it is tight",
        "variants": [{**row, "name": "Q8_0", "chosen": False, "well": False}, {**row, "name": "Q4_0", "chosen": True}],
    }
    lines = cli("load", "a/b").err.splitlines()
    assert "note: it is tight" in lines
    assert "   Q8_0  1.0 GiB  tight  CUDA0, context 4096" in lines
    assert "→  Q4_0  1.0 GiB  fits   CUDA0, context 4096" in lines


def test_a_failed_load_shows_reason_and_lines(cli: Cli, daemon: FakeDaemon) -> None:
    error = {"code": "model_load_failed", "message": "It broke.", "log_lines": ["line 1", "line 2"]}
    daemon.loading = [model("demo", "loading"), model("demo", "failed", error=error)]
    shown = cli("load", "demo")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.splitlines()[1:] == ["  | line 1", "  | line 2", "error: It broke. [model_load_failed]"]
    assert cli("load", "demo", "--json").json()["error"]["log_lines"] == ["line 1", "line 2"]


def test_a_model_that_does_not_fit_is_exit_4(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.loading = [model("demo", "failed", error={"code": "does_not_fit", "message": "Too big."})]
    assert cli("load", "demo").code == 4


def test_a_load_that_others_end_is_said(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.loading = [model("demo", "loading"), model("demo", "unloaded")]
    assert cli("load", "demo").err.endswith("[load_cancelled]\n")
    daemon.loading = [model("demo", "loading")]
    assert cli("load", "demo").err.endswith("[daemon_error]\n")


def test_ctrl_c_unloads_what_was_loading(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models["x"] = model("x")
    daemon.loading = [model("x", "loading"), FakeDaemon.WAIT]
    process = cli.start("load", "./x.gguf")
    assert process.stderr is not None
    assert process.stderr.readline() == "x: loading\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert daemon.called("/api/v1/models/unload") == [{"model": "x"}]


def test_options_for_a_new_daemon_are_named_when_one_runs(cli: Cli, daemon: FakeDaemon) -> None:
    assert "--port --engine" in cli("load", "demo", "--port", "1", "--engine", "x").err


def test_unload_one_all_none_and_unknown(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models |= {"a": model("a", "ready"), "b": model("b", "loading")}
    assert cli("unload", "a").out == "a is unloaded\n"
    assert cli("unload", "--all", "--now", "--json").json()["models"][0]["id"] == "b"
    assert daemon.called("/api/v1/models/unload") == [{"model": "a"}, {"model": "b", "now": True}]
    assert cli("unload", "--all").out == "no model is loaded\n"
    assert cli("unload", "zzz").err.endswith("[model_not_found]\n")


def test_logs_come_from_the_daemon(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("logs", "-n", "1").out == "second line\n"
    assert cli("logs", "a", "-f", "--json").out == '{"line": "first line"}\n{"line": "second line"}\n'
    assert daemon.requests[-1][1] == "/api/v1/logs?lines=100&follow=1&model=a"


def test_logs_of_a_daemon_that_ended_come_from_the_files(cli: Cli) -> None:
    folder = cli.state / "logs"
    folder.mkdir(parents=True)
    (folder / "daemon.log").write_text("one\ntwo\nthree\n")
    where = places({"SUPERVISOR_HOME": str(cli.state), "HOME": str(cli.state)})
    where.engine_log("a/b").write_text("engine\n")
    where.engine_log("a_b").write_text("another engine\n")
    assert cli("logs", "-n", "2").out == "two\nthree\n"
    assert cli("logs", "a/b").out == "engine\n"
    assert cli("logs", "a_b").out == "another engine\n"
    assert cli("logs", "nothing").code == 3
    assert cli("logs", "-f").code == 3


def test_chat_answers_one_message(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("chat", "-m", "hello").out == "I am a script.\n"
    assert cli("chat", "demo", stdin="piped in\n").out == "I am a script.\n"
    sent = [body["messages"] for body in daemon.called("/v1/chat/completions")]
    assert sent == [[{"role": "user", "content": "hello"}], [{"role": "user", "content": "piped in\n"}]]
    assert cli("chat", stdin=" ").code == 2


def test_a_piece_that_cannot_be_read_ends_a_chat_with_an_error(cli: Cli, daemon: FakeDaemon) -> None:
    deep: dict[str, object] = {}
    for _ in range(600):
        deep = {"a": deep}
    for piece, said in ((deep, "nests arrays and objects"), ("a text", "not a JSON object")):
        daemon.chat = lambda _, piece=piece: [piece]  # type: ignore[misc]  # of this round
        done = cli("chat", "-m", "hello")
        assert done.code != 0
        assert said in done.err
        assert "Traceback" not in done.err


def test_chat_takes_the_only_loaded_model_else_demo(cli: Cli, daemon: FakeDaemon) -> None:
    for state, expected in (("loading", "demo"), ("ready", "only")):
        daemon.models = {"only": model("only", state)}
        assert cli("chat", "-m", "x", "--json").json()["model"] == expected
    daemon.models = {"a": model("a", "ready"), "b": model("b", "ready")}
    assert cli("chat", "-m", "x", "--json").json()["model"] == "demo"


def test_chat_as_json_holds_all_parts(cli: Cli, daemon: FakeDaemon) -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    daemon.chat = lambda _: [chunk(reasoning_content="Hm. "), chunk(content="Yes."), chunk(tool_calls=[call])]
    assert cli("chat", "-m", "x", "--json").json() == {
        "model": "demo",
        "content": "Yes.",
        "reasoning_content": "Hm. ",
        "tool_calls": [{"name": "f", "arguments": "{}"}],
        "finish_reason": None,
        "timings": None,
    }
    assert cli("chat", "-m", "x").out == "Hm. \n\nYes.\ntool call: f({})\n"


def test_errors_within_a_stream_end_a_chat(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.chat = lambda _: [chunk(content="I "), {"error": {"message": "The engine died.", "code": "engine_lost"}}]
    shown = cli("chat", "-m", "x")
    assert (shown.code, shown.out) == (1, "I \n")
    assert shown.err.endswith("\nerror: The engine died. [engine_lost]\n")


def test_demo_says_each_step(cli: Cli, daemon: FakeDaemon) -> None:
    shown = Cli(cli.folder, SUPERVISOR_COMMAND="bin/supervisor")("demo")
    assert shown.code == 0
    steps = [
        "engine",
        "daemon",
        "model",
        "Who are you?",
        "I am a script.",
        "weather",
        "tool call: get_weather",
        "Next",
        "dashboard",
    ]
    places = [shown.out.index(step) for step in steps]
    assert places == sorted(places)
    assert '{"city": "Paris"}' in shown.out
    assert "bin/supervisor load owner/repo:quant" in shown.out
    assert f"{daemon.url}/v1" in shown.out


def test_demo_as_json_is_one_object(cli: Cli, daemon: FakeDaemon) -> None:
    shown = cli("demo", "--json")
    assert json.loads(shown.out) == {
        "engine": daemon.engine,
        "url": f"{daemon.url}/v1",
        "model": "demo",
        "answer": "I am a script.",
        "tool_call": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    }
    assert "Who are you?" in shown.err


def test_demo_installs_no_engine_for_a_daemon_elsewhere(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.engine = None
    shown = cli("demo", "--url", daemon.url)
    assert shown.err.endswith("[engine_not_found]\n")
    assert not (tmp_path / "engines").exists()


def test_demo_asks_for_an_engine_where_the_daemon_has_none(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.engine = None
    shown = cli("demo", "--engine", str(tmp_path / "no-such-server"))
    assert shown.code == 1
    assert "no-such-server" in shown.err
    assert "[engine_" in shown.err
    assert not daemon.called("/api/v1/models/load")


def test_pin_and_unpin(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models = {"a": model("a", "ready")}
    assert cli("pin", "a").out == "a is pinned\n"
    assert cli("unpin", "a").out == "a is not pinned\n"
    assert cli("pin", "a", "--json").json()["pinned"]
    assert daemon.called("/api/v1/models/unpin") == [{"model": "a"}]


def test_requests_in_flight(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("ps", "--requests").out == "no request is in flight\n"
    one = {"id": 7, "model": "a", "engine": None, "path": "/v1/chat/completions", "since": time.time() - 3}
    daemon.in_flight = [{**one, "state": "waiting", "stream": True}]
    row = cli("ps", "--requests").out.splitlines()[-1].split()
    assert row[:5] == ["7", "a", "/v1/chat/completions", "waiting", "-"]
    assert cli("ps", "--requests", "--json").json()["requests"][0]["id"] == 7


def test_events_are_a_line_each(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.events = [
        ("snapshot", {"models": [model("a")], "requests": []}),
        ("model", model("a", "failed", error={"code": "does_not_fit"})),
        ("request", {"id": 1, "model": "a", "path": "/v1/completions", "state": "running"}),
        ("request_done", {"id": 1}),
    ]
    assert cli("events").out.splitlines() == [
        "models: 1, requests in flight: 0",
        "a: failed, 0 running, 0 waiting [does_not_fit]",
        "request 1: /v1/completions of a, running",
        "request 1: done",
    ]
    first = cli("events", "--json").out.splitlines()[0]
    assert json.loads(first)["event"] == "snapshot"
