"""What a person at a terminal sees: a pseudo-terminal, typed at and read from."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Self

import pyte
import pytest

from supervisor.system.owned import inner_folder
from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon, Json, chunk, model
from tests.support.gguf_bytes import STRING, header, pair
from tests.support.patience import PATIENCE

WAIT_SECONDS = PATIENCE
PROMPT = "\x1b[?2004h"
"""What the line editor of `chat` writes when it begins to read."""


class Command(Protocol):
    """What can be started: its command line for some arguments, its variables, the folder it runs in."""

    folder: Path
    env: dict[str, str]

    def argv(self, *arguments: str) -> list[str]:
        """The whole command line."""


class Terminal:
    """A command on a pseudo-terminal; `shown` is everything it printed, `screen` what a person has before them."""

    def __init__(self, cli: Command, *arguments: str, rows: int = 60, **env: str) -> None:
        self._master, slave = pty.openpty()
        self.shown, self._seen = "", 0
        width = int(env.get("COLUMNS", "100"))
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
        self.screen = pyte.Screen(width, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.process = subprocess.Popen(
            cli.argv(*arguments),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**cli.env, "TERM": "xterm", "COLUMNS": "100", **env},
            cwd=cli.folder,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` came, after what was waited for before."""
        while text not in self.shown[self._seen :]:
            if not self._read():
                pytest.fail(f"{text!r} never came; shown: {self.shown!r}")
        self._seen = self.shown.index(text, self._seen) + len(text)

    def see(self, *texts: str) -> None:
        """Read until all of them are on the screen, each within one line."""
        self.wait_until(lambda: all(any(text in line for line in self.screen.display) for text in texts), texts)

    def wait_until(self, condition: Callable[[], bool], wanted: object = "it") -> None:
        """Read until the condition holds."""
        until = time.monotonic() + WAIT_SECONDS  # of a screen that is drawn again and again
        while not condition():
            if not self._read() or time.monotonic() > until:
                pytest.fail(f"{wanted!r} never came; on the screen: {self.lines}")

    @property
    def lines(self) -> list[str]:
        """The lines on the screen that are not empty."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def interrupt_until(self, text: str) -> None:
        """Ctrl-C until `text` comes: one that falls between the prompt and the wait for a key is not seen."""
        self.process.send_signal(signal.SIGINT)
        while text not in self.shown[self._seen :]:
            if not self._read(within=1.0):
                self.process.send_signal(signal.SIGINT)
        self.wait_for(text)

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(WAIT_SECONDS)

    def _read(self, within: float = WAIT_SECONDS) -> bool:
        ready, _, _ = select.select([self._master], [], [], within)
        try:
            data = os.read(self._master, 4096) if ready else b""
        except OSError:  # Linux's way to say that the other side has closed
            data = b""
        self.shown += data.decode(errors="replace")
        self._stream.feed(data)
        return bool(data)


@pytest.fixture
def ready(cli: Cli, daemon: FakeDaemon) -> FakeDaemon:
    daemon.models["a"] = model("a", "ready", n_ctx=4096, loaded_at=time.time() - 3 * 86400)
    return daemon


def test_a_table_has_loud_headers_unless_no_color(cli: Cli, ready: FakeDaemon) -> None:
    for name, value, loud in (("TERM", "xterm", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False)):
        with Terminal(cli, "ps", **{name: value}) as terminal:  # type: ignore[arg-type]  # not `rows`
            assert terminal.end() == 0
        assert ("\x1b[1m" in terminal.shown) is loud, (name, value)
        assert "4096" in terminal.shown
        assert "3d" in terminal.shown


def test_a_long_line_of_the_doctor_goes_on_below_its_words(cli: Cli) -> None:
    with Terminal(cli, "doctor", COLUMNS="50") as terminal:
        terminal.end()
    lines = [line for line in terminal.shown.replace("\r", "").split("\n") if line]
    assert all(re.match(r"(ok|warn|fail) +\S| {6}( {5})?\S", line) for line in lines), lines
    assert any(line.startswith("      ") for line in lines)


def test_json_on_a_terminal_is_indented(cli: Cli, ready: FakeDaemon) -> None:
    with Terminal(cli, "models", "--json") as terminal:
        assert terminal.end() == 0
    assert '\r\n  "models": [' in terminal.shown


def test_a_model_cannot_drive_the_terminal(cli: Cli, ready: FakeDaemon) -> None:
    ready.chat = lambda _: [chunk(content="safe\x1b]0;owned\x07\x9b2J")]
    with Terminal(cli, "chat", "-m", "x") as terminal:
        assert terminal.end() == 0
    assert "safe�]0;owned��2J" in terminal.shown


EVIL = "evil\x1b]0;owned\x07\x9b2J\x1b[2J\x1b[1A"


@pytest.mark.parametrize("verb", [["ps"], ["models"], ["logs"], ["inspect", "evil.gguf"], ["load", "a"], ["pin", "b"]])
def test_no_foreign_text_drives_the_terminal(cli: Cli, daemon: FakeDaemon, verb: list[str]) -> None:
    daemon.models = {EVIL: model(EVIL, "failed", error={"code": "x", "message": EVIL}), "b": model("b", pinned=True)}
    daemon.disk = [{"id": EVIL, "path": EVIL, "size_bytes": 1, "loaded": False}]
    daemon.logs = [EVIL]
    failure = {"message": EVIL, "code": "model_load_failed", "log_lines": [EVIL]}
    daemon.loading = [model("a", "failed", error=failure)]
    name = header(pair("general.architecture", STRING, "llama"), pair("general.name", STRING, EVIL))
    (cli.folder / "evil.gguf").write_bytes(name)
    with Terminal(cli, *verb) as terminal:
        terminal.end()
    ours = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown.replace("\x1b[2J", "!"))
    assert not set(ours) & {"\x1b", "\x07", "\x9b", "!"}, terminal.shown
    assert verb == ["pin", "b"] or "evil" in terminal.shown


@pytest.mark.parametrize("verb", [["ps"], ["models", "--json"]])
def test_what_no_encoding_has_is_written_as_an_escape(cli: Cli, daemon: FakeDaemon, verb: list[str]) -> None:
    daemon.models = {"a": model("a\udcff", "ready")}
    shown = cli(*verb)
    assert (shown.code, shown.out.count("\\udcff")) == (0, 1)


def test_reasoning_is_dim(cli: Cli, ready: FakeDaemon) -> None:
    ready.chat = lambda _: [chunk(reasoning_content="Hm."), chunk(content="Yes.")]
    with Terminal(cli, "chat", "-m", "x") as terminal:
        assert terminal.end() == 0
    assert "\x1b[2mHm.\x1b[0m" in terminal.shown


def test_progress_of_a_load_goes_away(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.loading = [model("demo", "loading", stage="tensors", progress=0.4), FakeDaemon.WAIT, model("demo", "ready")]
    with Terminal(cli, "load", "demo") as terminal:
        terminal.wait_for("demo: loading (tensors)")
        daemon.held.set()
        assert terminal.end() == 0
    assert terminal.shown.endswith("model     demo\r\n")


def test_a_conversation_remembers_forgets_and_ends(cli: Cli, ready: FakeDaemon) -> None:
    with Terminal(cli, "chat") as terminal:
        terminal.wait_for(PROMPT)
        for line in ("first", "second", "/clear", "third"):
            terminal.type(f"{line}\n")
            if not line.startswith("/"):
                terminal.wait_for("a script.")
            terminal.wait_for(PROMPT)
        terminal.type("/exit\n")
        assert terminal.end() == 0
    answer = {"role": "assistant", "content": "I am a script."}
    sent = [body["messages"] for body in ready.called("/v1/chat/completions")]
    assert sent == [[_user("first")], [_user("first"), answer, _user("second")], [_user("third")]]
    history = cli.state / "chat_history"
    assert history.read_text().splitlines()[:2] == ["first", "second"]
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_cancels_the_answer_and_not_the_program(cli: Cli, ready: FakeDaemon) -> None:
    endless: list[Json | str] = [chunk(content="word "), FakeDaemon.WAIT, *[chunk(content="more " * 1000)] * 1000]
    ready.chat = lambda request: endless if said(request) == "talk" else [chunk(content="Fine.")]
    with Terminal(cli, "chat") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("talk\n")
        terminal.wait_for("word ")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("(cancelled)")
        ready.held.set()
        assert ready.gone.wait(WAIT_SECONDS), "the connection stayed open"
        terminal.wait_for(PROMPT)
        terminal.interrupt_until(PROMPT)
        terminal.type("well?\n")
        terminal.wait_for("Fine.")
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0


def test_an_error_in_a_conversation_is_said_and_the_message_dropped(cli: Cli, ready: FakeDaemon) -> None:
    error = {"error": {"message": "The engine died.", "code": "engine_lost"}}
    ready.chat = lambda request: [error if said(request) == "bad" else chunk(content="Fine.")]
    with Terminal(cli, "chat") as terminal:
        for line, reply in (("bad", "[engine_lost]"), ("good", "Fine.")):
            terminal.wait_for(PROMPT)
            terminal.type(f"{line}\n")
            terminal.wait_for(reply)
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0
    assert ready.called("/v1/chat/completions")[-1]["messages"] == [_user("good")]


def test_clean_asks_and_takes_no_for_an_answer(cli: Cli) -> None:
    inner_folder(cli.state / "logs")
    (cli.state / "logs" / "daemon.log").write_text("x")
    for answer, left in (("n\n", True), ("\n", True), ("\x04", True), ("y\n", False)):
        with Terminal(cli, "clean", "--keep-environment", TERM="dumb") as terminal:
            terminal.wait_for("[y/N] ")
            terminal.type(answer)
            assert terminal.end() == 0
        assert cli.state.exists() is left, answer


def said(request: Json) -> str:
    """The last message of a chat request."""
    return str(request["messages"][-1]["content"])


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
