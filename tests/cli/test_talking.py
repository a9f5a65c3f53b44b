"""Conversations: what they send, what is typed at them, and one prompt in a pipe."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.answer import speed_text
from supervisor.cli.talking.commands import COMMANDS, assignment
from supervisor.cli.talking.conversation import Conversation
from supervisor.cli.talking.history import LONGEST, MOST_LINES, read_history, write_history
from supervisor.cli.talking.images import MOST_BYTES, image_part
from supervisor.cli.talking.saving import MOST_SAVED, save
from supervisor.errors import UsageError
from supervisor.system.owned import own_folder
from supervisor.system.paths import places
from tests.cli.conftest import Cli
from tests.cli.test_real_daemon import real as real_fixture
from tests.cli.test_terminal import PROMPT, Terminal
from tests.fakes.fake_daemon import FakeDaemon, Json, chunk, model

real = real_fixture
PNG = b"\x89PNG\r\n\x1a\n....."
TIMINGS = {"prompt_n": 25, "prompt_ms": 120.0, "cache_n": 3, "predicted_n": 12, "predicted_per_second": 38.25}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def test_a_request_has_all_that_was_said_and_set() -> None:
    talk = Conversation("m", "Be brief.", {"temperature": 0.2})
    system = {"role": "system", "content": "Be brief."}
    assert talk.say("One") == {"temperature": 0.2, "model": "m", "messages": [system, user("One")]}
    talk.take("1")
    assert talk.say("Two")["messages"] == [system, user("One"), assistant("1"), user("Two")]
    talk.take("")
    assert talk.messages == [user("One"), assistant("1")], "a message without an answer is dropped"
    assert (talk.say_again() or {})["messages"][-1] == user("Two"), "and can be tried again"
    talk.take("2")
    talk.take("two")
    assert talk.messages[2:] == [user("Two"), assistant("two")], "another answer takes the place of the first"
    talk.forget()
    assert (talk.messages, talk.say_again()) == ([], None)


def test_images_go_with_the_next_message_only(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    part = image_part(str(tmp_path / "a.png"))
    assert part["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    talk = Conversation("m", images=[part])
    assert talk.say("What?")["messages"][0]["content"] == [{"type": "text", "text": "What?"}, part]
    assert talk.say("And?")["messages"][-1] == user("And?")


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for name, why in (("text", "no PNG"), ("large", "larger than 32 MiB"), ("absent", "cannot be read")):
        with pytest.raises(UsageError, match=why):
            image_part(str(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("temperature 0.2", ("temperature", 0.2)), ("temperature=0.2", ("temperature", 0.2)),
        ("stop a b", ("stop", "a b")),
        ('stop ["x"]', ("stop", ["x"])), ("top_k", ("top_k", None)), ("top_k null", ("top_k", None)),
        ("grammar=a=b", ("grammar", "a=b")),
    ],
)  # fmt: skip
def test_a_parameter_is_json_or_text(text: str, found: tuple[str, object]) -> None:
    assert assignment(text) == found


def test_a_history_keeps_lines_within_its_bounds(tmp_path: Path) -> None:
    file = own_folder(tmp_path / "state") / "history"
    typed = ["one", "two\nlines", "a \\n that was typed", "\\", "x" * (LONGEST + 1)]
    write_history(file, typed)
    assert read_history(file) == typed[:-1]
    assert file.stat().st_mode & 0o777 == 0o600
    write_history(file, [str(number) for number in range(2 * MOST_LINES)])
    assert read_history(file) == [str(number) for number in range(MOST_LINES, 2 * MOST_LINES)]
    assert read_history(tmp_path / "absent") == []


def test_saved_conversations_are_private_and_the_newest_stay(tmp_path: Path) -> None:
    where = places({"SUPERVISOR_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    talk = Conversation("owner/m:Q4", "Be brief.")
    talk.say("One")
    talk.take("1")
    for _ in range(3):
        path = save(talk, "", where)
        assert path.parent == where.chats
        assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "# owner/m:Q4\n\n## system\n\nBe brief.\n\n## user\n\nOne\n\n## assistant\n\n1\n"
    for number in range(MOST_SAVED + 10):
        (where.chats / f"{number}.md").touch()
    save(talk, "", where)
    assert len(list(where.chats.glob("*.md"))) == MOST_SAVED
    other = save(talk, str(tmp_path / "talk.json"), where)
    assert json.loads(other.read_text())["messages"] == talk.messages
    with pytest.raises(UsageError, match="there already"):
        save(talk, str(other), where)
    with pytest.raises(UsageError, match="cannot be written"):
        save(talk, str(tmp_path / "absent" / "x"), where)


def test_figures_are_told_as_far_as_there_are_any() -> None:
    assert speed_text(TIMINGS) == "12 tokens, 38.2 t/s · prompt: 25 tokens (3 more were in the cache) in 0.12 s"
    assert speed_text({"prompt_n": 1, "prompt_ms": 5, "predicted_n": 0}) == "prompt: 1 tokens in 0.01 s"
    assert speed_text(None) == speed_text({}) == ""


def sent(daemon: FakeDaemon) -> list[Json]:
    return daemon.called("/v1/chat/completions")


def test_run_answers_an_argument_a_pipe_or_both(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.chat = lambda _: [chunk(reasoning_content="Hm."), chunk(content="Yes.")]
    assert cli("run", "demo", "Is", "it?").out == "Yes.\n", "in a pipe: without reasoning"
    assert cli("run", "demo", stdin="piped\n").out == "Yes.\n"
    assert cli("run", "demo", "Sum up:", "--thoughts", stdin="a text\n").out == "Hm.\n\nYes.\n"
    told = [request["messages"][0]["content"] for request in sent(daemon)]
    assert told == ["Is it?", "piped", "Sum up:\n\na text"]
    assert (cli("run", "demo", stdin=" ").code, cli("run").code) == (2, 2)


def test_run_sends_system_parameters_and_images(cli: Cli, daemon: FakeDaemon) -> None:
    (cli.folder / "a.png").write_bytes(PNG)
    given = ("--system", "Be brief.", "--set", "temperature=0", "--image", "a.png", "--json")
    found = cli("run", "demo", "What?", *given).json()
    assert (found["content"], found["timings"]) == ("I am a script.", None)
    (request,) = sent(daemon)
    assert request["temperature"] == 0
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert request["messages"][1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert cli("run", "demo", "x", "--set", "model=other").code == 2


def test_a_model_that_is_known_to_see_nothing_gets_no_image(cli: Cli, daemon: FakeDaemon) -> None:
    (cli.folder / "a.png").write_bytes(PNG)
    daemon.loading = [model("demo", "ready", abilities={"inputs": ["text"]})]
    found = cli("run", "demo", "What?", "--image", "a.png")
    assert (found.code, "takes no images" in found.err) == (2, True)
    daemon.loading = [model("demo", "ready", abilities={"inputs": ["text", "image"]})]
    assert cli("run", "demo", "What?", "--image", "a.png").code == 0


@pytest.fixture
def ready(cli: Cli, daemon: FakeDaemon) -> FakeDaemon:
    daemon.models["a"] = model("a", "ready", n_ctx=4096)
    return daemon


class Chat(Terminal):
    """`chat` on a terminal."""

    def say(self, text: str, reply: str, enter: str = "\r") -> None:
        """Type it at the prompt; wait for what comes of it."""
        self.wait_for(PROMPT)
        self.type(f"{text}{enter}")
        self.wait_for(reply)

    def leave(self) -> None:
        self.wait_for(PROMPT)
        self.type("\x04")
        assert self.end() == 0


def test_every_command_of_a_conversation(cli: Cli, ready: FakeDaemon) -> None:
    (cli.folder / "a.png").write_bytes(PNG)
    ready.models["b"] = model("b", "ready")
    answers = iter(["First.", "Second.", "Third.", "Fourth."])
    ready.chat = lambda _: [chunk(content=next(answers)), {**chunk(), "timings": TIMINGS}]
    with Chat(cli, "chat", "a") as chat:
        chat.say("/help", "/exit")
        chat.say("/system Be brief.", "system: Be brief.")
        chat.say("/set temperature 0.2", "temperature = 0.2")
        chat.say("One?", "12 tokens, 38.2 t/s")
        chat.say("/retry", "Second.")
        chat.say("/image a.png", "1 image will go")
        chat.say("/model b", "model: b")
        chat.say("Two?", "Third.")
        chat.say("/save talk.json", "saved to")
        chat.say("/clear", "(forgotten)")
        chat.say("/system none", "system: none")
        chat.say("/set temperature", "nothing is set")
        chat.say("Three?", "Fourth.")
        for wrong in ("/nothing", "/image absent.png", "/image", "/save talk.json", "/set model x"):
            chat.say(wrong, "[usage]")
        chat.leave()
    first, again, second, third = sent(ready)
    assert first == again
    assert first == {
        **{"temperature": 0.2, "model": "a", "stream": True},
        "messages": [{"role": "system", "content": "Be brief."}, user("One?")],
    }
    assert second["model"] == "b"
    assert second["messages"][1:3] == [user("One?"), assistant("Second.")], "the first answer was replaced"
    assert [part["type"] for part in second["messages"][3]["content"]] == ["text", "image_url"]
    assert (third["messages"], "temperature" in third) == ([user("Three?")], False)
    saved = json.loads((cli.folder / "talk.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["user", "assistant", "user", "assistant"]
    assert (cli.folder / "talk.json").stat().st_mode & 0o777 == 0o600
    assert all(name in chat.shown for name in COMMANDS)


def test_lines_are_edited_remembered_and_several(cli: Cli, ready: FakeDaemon) -> None:
    with Chat(cli, "chat") as chat:
        chat.say("wrodl\x1b[D\x7f\x7fldo\x05\x7f\x7f\x7frld", "a script.")  # back, rub out, to the end
        chat.say("one\\\rtwo\x1b\rthree", "a script.")
        chat.say("\x1b[200~pasted\nlines\x1b[201~", "a script.")
        chat.leave()
    with Chat(cli, "chat") as chat:
        chat.say("\x1b[A", "a script.")
        chat.leave()
    asked = [request["messages"][-1]["content"] for request in sent(ready)]
    assert asked[1:] == ["one\ntwo\nthree", "pasted\nlines", "pasted\nlines"]
    assert asked[0].endswith("rld")


def test_tab_completes_commands_models_and_files(cli: Cli, ready: FakeDaemon) -> None:
    ready.models["long-name"] = model("long-name", "ready")
    ready.answers["/api/v1/models"] = {"models": [{"id": "a"}, {"id": "long-name"}]}
    (cli.folder / "picture.png").write_bytes(PNG)
    with Chat(cli, "chat", "a") as chat:
        chat.say("/mod\t lo\t", "model: long-name")
        chat.say("/im\t pic\t", "1 image will go")
        chat.leave()


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(cli: Cli, ready: FakeDaemon) -> None:
    with Terminal(cli, "chat", TERM="dumb") as terminal:
        terminal.wait_for("> ")
        terminal.type("One?\n")
        terminal.wait_for("a script.")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "\x1b" not in terminal.shown
    assert sent(ready)[0]["messages"] == [user("One?")]


def test_ctrl_c_keeps_what_came_and_a_stopped_answer_can_be_tried_again(cli: Cli, ready: FakeDaemon) -> None:
    endless: list[Json | str] = [chunk(content="word "), FakeDaemon.WAIT, *[chunk(content="more " * 1000)] * 1000]
    answers: Iterator[list[Json | str]] = iter([endless, [chunk(content="Fine.")]])
    ready.chat = lambda _: next(answers)
    with Chat(cli, "chat") as chat:
        chat.say("talk", "word ")
        chat.process.send_signal(signal.SIGINT)
        chat.wait_for("(cancelled)")
        ready.held.set()
        chat.say("/retry", "Fine.")
        chat.say("/save talk.json", "saved")
        chat.leave()
    assert json.loads((cli.folder / "talk.json").read_text())["messages"] == [user("talk"), assistant("Fine.")]


def test_a_conversation_is_saved_in_the_state_folder_and_clean_removes_it(cli: Cli, ready: FakeDaemon) -> None:
    with Chat(cli, "chat", "a") as chat:
        chat.say("One?", "a script.")
        chat.say("/save", "saved to")
        chat.leave()
    (saved,) = (cli.state / "chats").glob("a-*.md")
    assert "## user\n\nOne?" in saved.read_text()
    (cli.state / "endpoint.json").unlink()
    assert cli("clean", "--keep-environment", "--yes").code == 0
    assert not cli.state.exists()


@pytest.mark.engine
def test_a_conversation_with_a_real_model(real: Cli) -> None:
    assert real("start", "--port", "0").code == 0
    with Chat(real, "chat", "demo") as chat:
        chat.say("Who are you?", "built-in")
        chat.wait_for("t/s")
        chat.say("/set max_tokens 3", "max_tokens = 3")
        chat.say("/retry", "3 tokens, ")
        chat.leave()
    assert real("run", "demo", "Who are you?").out == real("chat", "demo", "-m", "Who are you?").out
    assert real("run", "demo", "Hello", "--json", "--set", "max_tokens=2").json()["timings"]["predicted_n"] == 2
