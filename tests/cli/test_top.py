"""`top`: its picture of what the daemon said, and its keys on a pseudo-terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.cli.picture import Choice, Line, Snapshot, View, picture
from supervisor.cli.rows import MODEL_HEADERS
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


def node(name: str, models: list[Json], **more: Any) -> Json:
    """A node as the daemon tells of it; of `two` it is told that a card holds 12 GiB of ours."""
    held: Json = {"model": "far", "weights_bytes": 11 * GIB, "kv_bytes": GIB, "compute_bytes": 0, "other_bytes": 0}
    card = {"name": "CUDA0", "total_bytes": 24 * GIB, "free_bytes": 6 * GIB, "held": [held]}
    host = {"name": "CPU", "total_bytes": 64 * GIB, "free_bytes": 32 * GIB, "held": []}
    facts = {"state": "ready", "here": False, "asked": True, "why": None, "requests": 2, "free_bytes": 30 * GIB}
    return {"name": name, **facts, "devices": [card, host], "models": models, **more}


def clustered(others: list[Json], models: list[Json]) -> Snapshot:
    """A snapshot of a node `one` of a cluster, which has these models."""
    return replace(snapshot(models), nodes=[node("one", models, here=True, requests=1), *others])


def test_in_a_cluster_devices_and_models_are_shown_by_node() -> None:
    others = [
        node("two", [model("far", "ready", n_ctx=8192, leases=2)]),
        node("three", [model("slow", "loading")], asked=False, why="it does not answer in time", requests=None),
        node("four", [], state="away", asked=False, why="it is away", requests=None),
    ]
    shown = texts(picture(clustered(others, [model("near", "ready")]), View(), 120, 40))
    place = shown.index("two · ready · requests: 2")
    assert shown[1] == "one (this) · ready · requests: 1"
    assert shown[place + 1] == f"CUDA0  {'█' * 12}{'▒' * 6}{'·' * 6}  18 GiB of 24 GiB, ours 12 GiB"
    assert shown[place + 2] == f"host   {'▒' * 12}{'·' * 12}  32 GiB of 64 GiB, ours 0 B"
    assert shown[place + 3] == "three · ready · it does not answer in time, as it last told · 30 GiB free for models"
    assert shown[place + 4] == "four · away"
    rows = [line.split() for line in shown]
    assert ["NODE", *MODEL_HEADERS] in rows
    assert ["›", "one", "(this)", "near", "ready"] in [row[:5] for row in rows]
    assert ["two", "far", "ready", "-", "8192"] in [row[:5] for row in rows]
    assert ["three", "slow", "loading"] in [row[:3] for row in rows]


def test_models_of_the_same_name_on_two_nodes_are_two_choices() -> None:
    both = clustered([node("two", [model("a", "ready", pinned=True)])], [model("a", "ready")])
    assert both.choices() == [Choice("model", "a"), Choice("model", "a", "two")]
    assert (both.pins(both.choices()[0]), both.pins(both.choices()[1])) == (False, True)
    lines = picture(both, View(Choice("model", "a", "two")), 120, 40)
    assert [line.text.split()[:3] for line in lines if line.style == "chosen"] == [["›", "two", "a"]]


@pytest.mark.parametrize("height", [5, 8, 12, 24, 60])
def test_a_large_cluster_fits_every_screen(height: int) -> None:
    many = [node(f"node-{number}", [model(f"m{number}", "ready")]) for number in range(40)]
    for chosen in (None, Choice("model", "near"), Choice("model", "m30", "node-30")):
        lines = picture(clustered(many, [model("near", "ready")]), View(chosen), 60, height)
        assert len(lines) <= height
        assert all(columns_of(line.text) <= 60 for line in lines), texts(lines)
        assert height < 24 or any(line.style == "chosen" for line in lines), "it scrolls"


def test_what_is_foreign_cannot_drive_the_screen() -> None:
    evil = "evil\x1b[2J\n\x9b"
    lines = picture(snapshot([model(evil, "ready")], [{**REQUEST, "model": evil}]), View(question=evil), 100, 30)
    assert all(line.text.isprintable() for line in lines)
    assert sum("evil" in line.text for line in lines) == 3
    elsewhere = clustered([node(evil, [model(evil, evil)], why=evil), node(evil, [], asked=False, why=evil)], [])
    lines = picture(elsewhere, View(message=evil), 100, 30)
    assert all(line.text.isprintable() for line in lines)
    assert sum("evil" in line.text for line in lines) == 3, "two nodes, and the message"


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


def test_of_a_model_on_another_node_it_says_what_to_do(cli: Cli, busy: FakeDaemon) -> None:
    far, pinned = model("far one", "ready"), model("held", "ready", pinned=True)
    busy.nodes = [node("one", [], here=True), node("two", [far, pinned])]
    with Terminal(cli, "top") as terminal:
        terminal.see("› one (this)  a ")
        terminal.type("j")
        terminal.see("› two ")
        terminal.type("u")
        terminal.see("far one is on the node two. There: `supervisor unload 'far one'`.")
        terminal.type("p")
        terminal.see("There: `supervisor pin 'far one'`.")
        terminal.type("jp")
        terminal.see("There: `supervisor unpin held`.")
        terminal.type("q")
        assert terminal.end() == 0
    assert not busy.called("/api/v1/models/unload")
    assert not busy.called("/api/v1/models/pin")
    assert set(cli("top", "--json").json()) == {"status", "devices", "requests", "nodes"}
    assert set(cli("top", "--json", "--here").json()) == {"status", "devices", "requests"}
    assert "two" not in cli("top", "--here").out


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
