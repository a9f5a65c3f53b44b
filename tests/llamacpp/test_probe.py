"""What a binary says is asked once, as long as it is the same binary."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.errors import EngineUnusable
from supervisor.llamacpp.probe import capabilities
from supervisor.llamacpp.store import EngineStore, Manifest
from supervisor.system.paths import Places
from supervisor.system.processes import is_running
from tests.llamacpp.fakes import calls_of, make_server
from tests.support.daemon import wait_until

ASKED_ONCE = ["--version", "--help", "--list-devices"]


def test_what_a_binary_says(tmp_path: Path) -> None:
    server = make_server(tmp_path / "bin", 77)
    (tmp_path / "bin" / "libggml-rpc.so").touch()
    assert capabilities(server, tmp_path / "cache.json") == Capabilities(
        build=77,
        commit="abc1234",
        version_text="version: 0.6.0-dev (build 77, commit abc1234)",
        flags={"-m": 1, "--model": 1, "-c": 1, "--ctx-size": 1},
        backends=("cpu", "cuda", "rpc"),
    )


def test_the_second_time_nothing_is_run(tmp_path: Path) -> None:
    server, cache = make_server(tmp_path / "bin"), tmp_path / "cache.json"
    assert capabilities(server, cache) == capabilities(server, cache)
    assert calls_of(server) == ASKED_ONCE


def test_a_link_to_it_is_the_same_binary(tmp_path: Path) -> None:
    server, cache = make_server(tmp_path / "bin"), tmp_path / "cache.json"
    (tmp_path / "link").symlink_to(server)
    assert capabilities(server, cache) == capabilities(tmp_path / "link", cache)
    assert calls_of(server) == ASKED_ONCE


@pytest.mark.parametrize("changed", ["llama-server", "libllama.so"])
def test_a_new_file_or_library_is_asked_again(tmp_path: Path, changed: str) -> None:
    server, cache = make_server(tmp_path / "bin"), tmp_path / "cache.json"
    (tmp_path / "bin" / "libllama.so").touch()
    capabilities(server, cache)
    os.utime(tmp_path / "bin" / changed, ns=(0, 1))
    capabilities(server, cache)
    assert calls_of(server) == ASKED_ONCE * 2


@pytest.mark.parametrize("option", ASKED_ONCE)
@pytest.mark.parametrize("stream", ["", ">&2"])
def test_what_prints_without_end_is_ended(tmp_path: Path, option: str, stream: str) -> None:
    server = make_server(tmp_path / "bin")
    script = server.read_text("utf-8").splitlines()
    script.insert(1, f'[ "$1" = {option} ] && {{ cat /dev/zero {stream}; exit 0; }}')
    server.write_text("\n".join(script), "utf-8")
    with pytest.raises(EngineUnusable, match="prints more than 4 MiB"):
        capabilities(server, tmp_path / "cache.json")


def test_what_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.llamacpp.probe._TIMEOUT_SECONDS", 0.5)
    server, started = make_server(tmp_path / "bin"), tmp_path / "started"
    server.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {started}\nwait\n", "utf-8")
    with pytest.raises(EngineUnusable, match="gave no answer within"):
        capabilities(server, tmp_path / "cache.json")
    pids = started.read_text("utf-8").split() if started.exists() else []
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids), "the end of what it had started")


@pytest.mark.parametrize("content", ["", "[]", '{"x": 1}', "\0"])
def test_a_damaged_cache_is_no_cache(tmp_path: Path, content: str) -> None:
    server, cache = make_server(tmp_path / "bin", 5), tmp_path / "cache.json"
    cache.write_text(content, encoding="utf-8")
    assert capabilities(server, cache).build == 5


def test_our_own_build_knows_its_number_though_the_binary_does_not(places: Places, tmp_path: Path) -> None:
    store = EngineStore(places.engines)
    made = store.new_scratch("test") / "engine"
    make_server(made / "bin", 0)
    placed = store.place(made, Manifest("x", 11434, "f00", "cpu", "git", "", 1))
    assert capabilities(store.binary(placed.name), tmp_path / "cache.json").build == 11434


@pytest.mark.engine
def test_the_real_server(real_server: Path, tmp_path: Path) -> None:
    found = capabilities(real_server, tmp_path / "cache.json")
    assert found.version_text.startswith("version: ")
    assert found.supports("--ctx-size")
    assert found.supports("--host")
    assert "cpu" in found.backends
