"""`top`: its picture of what the daemon said, and its keys on a pseudo-terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from supervisor.cli.picture import Choice, Line, Snapshot, View, picture
from supervisor.cli.tables import columns_of
from tests.cli.conftest import Cli
from tests.cli.test_real_daemon import real as real_fixture
from tests.cli.test_terminal import Terminal
from tests.fakes.fake_daemon import FakeDaemon, Json, model
from tests.support.scripted import ScriptedModel

GIB = 1 << 30
NOW = 1_767_225_600.0
REQUEST: Json = {
    "id": 7,
    "model": "a",
    "engine": 1,
    "path": "/v1/chat/completions",
    "since": NOW - 3,
    "state": "running",
    "completion_tokens": 480,
    "tokens_per_second": 96.04,
}
CARD: Json = {"name": "CUDA0", "total_bytes": 24 * GIB, "free_bytes": 6 * GIB, "usable_bytes": 20 * GIB}
DEVICES: Json = {
    "host": {"total_bytes": 64 * GIB, "available_bytes": 32 * GIB, "usable_bytes": 30 * GIB, "reserve_bytes": 0},
    "devices": [{**CARD, "utilization_percent": 35}, {**CARD, "name": "Vulkan0", "usable_bytes": None}],
    "problems": [],
}
real = real_fixture


def snapshot(models: list[Json], requests: list[Json] | None = None, devices: Json = DEVICES) -> Snapshot:
    status = {"version": "0.1.0", "url": "http://127.0.0.1:8686", "started_at": NOW - 7200, "engine": {"build": 11434}}
    return Snapshot({**status, "models": models}, devices, requests or [], NOW)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def test_it_shows_daemon_devices_models_requests_and_keys() -> None:
    loaded = model("a", "ready", n_ctx=4096, rss_bytes=8 * GIB, footprint={"CUDA0": 12 * GIB}, leases=1)
    shown = texts(picture(snapshot([loaded, model("b")], [REQUEST]), View(), 120, 30))
    assert shown[0] == "llama-supervisor 0.1.0 · http://127.0.0.1:8686 · up 2h · llama.cpp b11434 · 96.0 t/s"
    assert shown[1] == f"CUDA0  {'█' * 12}{'▒' * 6}{'·' * 6}  18 GiB of 24 GiB, ours 12 GiB, busy 35 %"
    assert shown[2] == f"host   {'█' * 3}{'▒' * 9}{'·' * 12}  32 GiB of 64 GiB, ours 8.0 GiB"
    rows = [line.split() for line in shown]
    assert ["›", "a", "ready", "-", "4096", "8.0", "GiB", "1", "0", "-", "-"] in rows
    assert ["7", "a", "/v1/chat/completions", "running", "1", "3s", "480", "96.0", "t/s"] in rows
    assert not any(row[:1] == ["b"] for row in rows), "what has no engine is left out"
    assert shown[-1].startswith("↑↓ choose")


def test_a_device_of_which_nothing_is_known_is_named() -> None:
    devices = {**DEVICES, "devices": [{**CARD, "free_bytes": None}]}
    assert "CUDA0  nothing is known of its memory" in texts(picture(snapshot([], None, devices), View(), 100, 20))


@pytest.mark.parametrize("height", [5, 8, 12, 24, 60])
@pytest.mark.parametrize("width", [10, 40, 100])
def test_it_fits_every_screen(width: int, height: int) -> None:
    models = [model(f"模型 {number}", "ready", rss_bytes=GIB) for number in range(40)]
    requests = [{**REQUEST, "id": number} for number in range(40)]
    for chosen in (None, Choice("model", "模型 30"), Choice("request", "35")):
        lines = picture(snapshot(models, requests), View(chosen), width, height)
        assert len(lines) <= height
        assert all(columns_of(line.text) <= width for line in lines), texts(lines)
        assert chosen is None or height < 24 or any(line.style == "chosen" for line in lines), "it scrolls"


def test_what_is_foreign_cannot_drive_the_screen() -> None:
    evil = "evil\x1b[2J\n\x9b"
    lines = picture(snapshot([model(evil, "ready")], [{**REQUEST, "model": evil}]), View(question=evil), 100, 30)
    assert all(line.text.isprintable() for line in lines)
    assert sum("evil" in line.text for line in lines) == 3


def test_the_choice_moves_and_stays_with_its_line() -> None:
    both = snapshot([model("a", "ready"), model("b", "ready")], [REQUEST])
    view = View().moved(both, 1)
    assert view.choice == Choice("model", "b")
    assert view.moved(both, 1).choice == view.moved(both, 9).choice == Choice("request", "7")
    assert view.moved(both, -9).choice == Choice("model", "a")
    assert snapshot([model("b", "ready")]).chosen(view) == Choice("model", "b")
    assert snapshot([model("c", "ready")]).chosen(view) == Choice("model", "c"), "what has gone is no longer chosen"
    assert snapshot([]).chosen(view) is None
    assert View().moved(snapshot([]), 1).choice is None


@pytest.fixture
def busy(daemon: FakeDaemon) -> FakeDaemon:
    daemon.models["a"] = model("a", "ready", n_ctx=4096)
    daemon.in_flight = [REQUEST]
    daemon.answers["/api/v1/devices"] = DEVICES
    return daemon


def test_keys_pin_unload_cancel_and_end(cli: Cli, busy: FakeDaemon) -> None:
    with Terminal(cli, "top") as terminal:
        terminal.see("› a ", "CUDA0", "q quit")
        terminal.type("p")
        terminal.see("a is pinned")
        terminal.type("p")
        terminal.see("a is not pinned")
        terminal.type("u")
        terminal.see("Unload a? y/n")
        terminal.type("n")
        terminal.type("\x1b[B")
        terminal.see("› 7 ")
        assert not busy.called("/api/v1/models/unload")
        terminal.type("c")
        terminal.see("Cancel request 7? y/n")
        terminal.type("y")
        terminal.see("request 7 is cancelled", "› a ")
        terminal.type("uy")
        terminal.see("a is unloaded")
        terminal.type("q")
        assert terminal.end() == 0
    assert ("DELETE", "/api/v1/requests/7", {}) in busy.requests
    assert [body["model"] for body in busy.called("/api/v1/models/unload")] == ["a"]
    assert terminal.shown.endswith("\x1b[?25h\x1b[?1049l"), "the terminal is as it was"


def test_what_the_daemon_refuses_is_told_and_it_goes_on(cli: Cli, busy: FakeDaemon) -> None:
    with Terminal(cli, "top") as terminal:
        terminal.see("› a ")
        terminal.type("j")
        terminal.see("› 7 ")
        terminal.type("c")
        terminal.see("Cancel request 7? y/n")
        busy.in_flight = []
        terminal.type("y")
        terminal.see("[request_not_found]")
        busy.models["b"] = model("b", "ready")
        terminal.see("  b ")
        terminal.type("q")
        assert terminal.end() == 0


def test_without_a_terminal_it_is_printed_once(cli: Cli, busy: FakeDaemon) -> None:
    shown = cli("top")
    assert shown.code == 0
    assert "› a " in shown.out
    assert "\x1b" not in shown.out
    assert "q quit" not in shown.out
    assert set(cli("top", "--json").json()) == {"status", "devices", "requests"}
    assert cli("top", "--every", "0").code == 2


@pytest.mark.engine
def test_a_real_request_is_cancelled_and_its_model_unloaded(real: Cli, scripted_model: ScriptedModel) -> None:
    gguf: Path = scripted_model("On and on. ", endless=True)
    loaded = real("load", str(gguf), "--id", "m", "--port", "0", "--json").json()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx.stream("POST", f"{loaded['base_url']}/chat/completions", json=body, trust_env=False) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        with Terminal(real, "top") as terminal:
            terminal.see("› m ", "/v1/chat/completions", "host ")
            terminal.type("\x1b[B")
            terminal.see("/v1/chat/completions", "q quit")
            terminal.type("c")
            terminal.see("Cancel request ")
            terminal.type("y")
            terminal.see("is cancelled")
            assert error_of(lines) == "request_cancelled"
            terminal.type("uy")
            terminal.see("m is unloaded")
            terminal.type("q")
            assert terminal.end() == 0
    assert real("ps").out.splitlines()[0] == "no model is loaded"


def error_of(lines: Iterator[str]) -> str | None:
    """The code of the error with which a stream ends."""
    for line in lines:
        if line.startswith("data: {"):
            found = json.loads(line.removeprefix("data: "))
            if "error" in found:
                return str(found["error"]["code"])
    return None
