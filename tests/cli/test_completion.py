"""Completion: what may be typed next, and the scripts by which bash, zsh and fish ask for it at the Tab key."""

from __future__ import annotations

import copy
import os
import shutil
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.completion import behind_breaks, candidates, words_of
from supervisor.cli.names import within
from supervisor.cli.registry import VERBS
from supervisor.cli.shells import SCRIPTS
from supervisor.system.owned import own_folder
from tests.cli.conftest import ROOT, Cli
from tests.cli.test_real_daemon import real as real_fixture
from tests.cli.test_terminal import Terminal
from tests.fakes.fake_daemon import FakeDaemon, model
from tests.support.lacking import lacking
from tests.support.scripted import ScriptedModel

real = real_fixture


@pytest.mark.parametrize(
    ("typed", "words", "files"),
    [
        ("lo", ("load", "localai-backend", "logs"), False),
        ("sta", ("start", "status"), False),
        ("help dev", ("devices",), False),
        ("nothing ", (), False),
        ("load ", ("alpha", "beta"), True),
        ("load al", ("alpha",), True),
        ("load alpha ", (), False),
        ("unload be", ("beta",), False),
        ("load --flash-at", ("--flash-attn",), False),
        ("load -fa o", ("off", "on"), False),
        ("load --flash-attn=of", ("--flash-attn=off",), False),
        ("load --ctx-size 8k al", ("alpha",), True),
        ("load --cpu-moe al", ("alpha",), True),
        ("serve --config ", (), True),
        ("engine in", ("install",), False),
        ("engine install --backend v", ("vulkan",), False),
        ("run alpha hello ", (), False),
        ("completions ", ("bash", "fish", "zsh"), False),
    ],
)
def test_what_may_stand_there(typed: str, words: tuple[str, ...], files: bool) -> None:
    found = candidates(words_of(f"supervisor {typed}"), VERBS, lambda verb: ["alpha", "beta"])
    assert (found.words, found.files) == (words, files)


def test_every_verb_is_offered_and_the_hidden_one_is_not() -> None:
    assert set(VERBS.records) < set(candidates([""], VERBS, lambda verb: []).words)
    assert "_complete" not in candidates([""], VERBS, lambda verb: []).words


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "$(touch x)",
        "`x`",
        "a;b",
        "a&b",
        "{a,b}",
        "a\nb",
        "*",
        "'",
        "~x",
        "",
        ":files",
        "-x",
        "--url=example.org",
    ],
)
def test_a_name_that_a_shell_would_read_is_not_offered(name: str) -> None:
    assert candidates(["load", ""], VERBS, lambda verb: [name, "good"]).words[-1:] == ("good",)
    assert "".join(candidates(["load", ""], VERBS, lambda verb: [name]).words) in {"", ":files"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("supervisor load a", ["load", "a"]),
        ("supervisor ", [""]),
        ("x load ", ["load", ""]),
        ("x 'a b' c", ["a b", "c"]),
        ("x 'open", ["'open"]),
        ("", []),
    ],
)
def test_a_line_is_cut_into_words(line: str, words: list[str]) -> None:
    assert words_of(line) == words


def test_bash_takes_what_stands_before_a_colon_as_another_word() -> None:
    assert behind_breaks("owner/repo:Q4_K_M", "owner/repo:Q") == "Q4_K_M"
    assert behind_breaks("owner/repo:Q4_K_M", "own") == "owner/repo:Q4_K_M"


def test_what_takes_too_long_is_left_out() -> None:
    held = threading.Event()

    def slow() -> Iterator[str]:
        yield "quick"
        held.wait()
        yield "slow"

    assert within(0.01, slow()) in (["quick"], [])
    held.set()

    def failing() -> Iterator[str]:
        yield "before"
        raise OSError

    assert within(30, failing()) == ["before"]


def asked(cli: Cli, line: str) -> list[str]:
    cli.env["SUPERVISOR_LINE"] = f"supervisor {line}"
    done = cli("_complete")
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


def test_names_come_from_the_daemon_and_unload_gets_those_that_are_loaded(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models |= {"alpha": model("alpha", "ready"), "beta": {**model("beta"), "aliases": ["gamma"]}}
    assert asked(cli, "pin ") == ["alpha", "beta", "demo", "gamma"]
    assert asked(cli, "unload ") == ["alpha"]


def test_without_a_daemon_none_is_started_and_the_configuration_is_read(cli: Cli) -> None:
    assert "demo" in asked(cli, "chat ")
    assert asked(cli, "unload ") == []
    assert not cli.state.exists()


def test_a_daemon_that_does_not_answer_is_not_waited_for(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        state = own_folder(cli.state)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (state / "endpoint.json").write_text(f'{{"url": "{url}", "secret": "x", "pid": {os.getpid()}}}')
        assert asked(cli, "chat ") == []


def test_the_script_makes_no_environment(tmp_path: Path) -> None:
    for name in ("bin", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shell = shutil.which("sh")
    assert shell is not None
    assert os.spawnv(os.P_WAIT, shell, [shell, str(tmp_path / "bin" / "supervisor"), "_complete"]) == 0
    assert not (tmp_path / ".venv").exists()


def shell_of(cli: Cli, name: str) -> Cli:
    """What starts a shell that has `supervisor` on its path, on a terminal that is its own."""
    found = shutil.which(name)
    if found is None:
        lacking(f"{name} is not installed")
    program = cli.folder / "supervisor"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m supervisor "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    cli.env["PATH"] = f"{cli.folder}:{os.environ['PATH']}"
    shell = copy.copy(cli)
    shell.argv = lambda *arguments: [sys.executable, "-c", OWN_TERMINAL, found, *arguments]  # type: ignore[method-assign]  # of this one
    return shell


OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
BARE = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i"), "fish": ("--no-config", "-i")}
BEGIN = {
    "bash": "PS1='re''ady> '; eval \"$(supervisor completions bash)\"\n",
    "zsh": "PS1='re''ady> '; autoload -Uz compinit; compinit -u -D; eval \"$(supervisor completions zsh)\"\n",
    "fish": "function fish_prompt; echo -n 're''ady> '; end; supervisor completions fish | source\n",
}
"""What is typed first; the prompt that follows is not in it."""


@pytest.mark.engine
@pytest.mark.parametrize("name", SCRIPTS)
def test_tab_completes_a_model_that_is_loaded(real: Cli, scripted_model: ScriptedModel, name: str) -> None:
    assert real("load", str(scripted_model("Hm.")), "--id", "my-long-name", "--port", "0").code == 0
    with Terminal(shell_of(real, name), *BARE[name]) as terminal:
        terminal.type(BEGIN[name])
        terminal.see("ready>")
        terminal.type("supervisor unl\t")
        terminal.see("supervisor unload")
        terminal.type("my-l\t")
        terminal.see("supervisor unload my-long-name")
        terminal.type("\n")
        terminal.see("my-long-name is unloaded")
        terminal.type("exit\n")
        terminal.end()
