"""`chat [MODEL]`: talk to a model."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator

from supervisor.cli.answer import Answer, show, stream
from supervisor.cli.background import ensure
from supervisor.cli.client import Client, Json
from supervisor.cli.daemon import Daemon
from supervisor.cli.exits import OK
from supervisor.cli.installing import engine_of
from supervisor.cli.loading import load, parse_target
from supervisor.cli.options import add_background, require
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import dim, note, print_json
from supervisor.errors import SupervisorError
from supervisor.system.owned import own_folder
from supervisor.system.paths import places

VERB = Verb(
    summary="talk to a model",
    order=150,
    description="""Talk to a model: a conversation on a terminal, one answer to what is piped in or given with -m. The
model is loaded if need be, and a daemon started.""",
    examples=(
        ("chat", "with the loaded model, else demo"),
        ('chat demo -m "Who are you?"', "one answer"),
        ("chat owner/repo < question.txt", "one answer to a file"),
    ),
    aliases=("run",),
    exits=((4, "the model does not fit"),),
)

_HELP = "Ctrl-C cancels an answer · /clear forgets the conversation · /exit or Ctrl-D ends"
_HISTORY_LINES = 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="what `load` takes (default: the one loaded model, else demo)"
    )
    parser.add_argument("-m", "--message", metavar="TEXT", help="send this, print the answer, end")
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Answer one message, or hold a conversation."""
    target = parse_target(args.model) if args.model else None
    message = _single_message(args)
    with progress() as report:
        daemon = ensure(args, report)
        engine_of(args, daemon, report)
        model = load(daemon, {"target": target or _default_model(daemon)}, report)["id"]
    if message is None:
        _converse(daemon.client, model)
    elif args.json:
        answer = Answer()
        for _ in stream(daemon.client, _request(model, [_user(message)]), answer):
            pass
        print_json({"model": model, **answer.as_json()})
    else:
        show(daemon.client, _request(model, [_user(message)]), Answer())
    return OK


def _single_message(args: argparse.Namespace) -> str | None:
    """Return the one message to send; None on a terminal without -m."""
    if args.message is None and sys.stdin.isatty():
        require(not args.json, "A conversation has no JSON form; give a message with -m or pipe one in.")
        return None
    message = sys.stdin.read() if args.message is None else str(args.message)
    require(message.strip(), "There is no message to send; give one with -m or pipe one in.")
    return message


def _default_model(daemon: Daemon) -> str:
    ready = [model["id"] for model in daemon.models if model["state"] == "ready"]
    return ready[0] if len(ready) == 1 else "demo"


def _converse(client: Client, model: str) -> None:
    note(dim(f"{model} · {_HELP}"))
    messages: list[Json] = []
    with _line_history():
        while (line := _read_line()) != "/exit":
            if line == "/clear":
                messages.clear()
            elif line:
                messages.append(_user(line))
                messages[-1:] = _turn(client, model, messages)


def _turn(client: Client, model: str, messages: list[Json]) -> list[Json]:
    """Answer the last message. Return what replaces it: the message and its answer, or nothing where it failed."""
    answer = Answer()
    try:
        show(client, _request(model, messages), answer)
    except KeyboardInterrupt:
        note("(cancelled)")
    except SupervisorError as error:
        note(f"error: {error.message} [{error.code}]")
        return []
    return [messages[-1], {"role": "assistant", "content": answer.content}] if answer.content else []


def _read_line() -> str:
    """Return the next line typed; Ctrl-C starts over, Ctrl-D is `/exit`."""
    while True:
        try:
            return input("> ").strip()
        except KeyboardInterrupt:
            note("")
        except EOFError:
            note("")
            return "/exit"


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _request(model: str, messages: list[Json]) -> Json:
    return {"model": model, "messages": messages}


@contextlib.contextmanager
def _line_history() -> Iterator[None]:
    """Provide line editing and a history that outlives the program, where the platform has them."""
    try:
        import readline  # noqa: PLC0415 - absent on Windows; only a conversation needs it
    except ImportError:
        yield
        return
    file = places(os.environ).state / "chat_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(_HISTORY_LINES)
        with contextlib.suppress(OSError):
            own_folder(file.parent)
            readline.write_history_file(file)
            file.chmod(0o600)
