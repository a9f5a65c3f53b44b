"""One question with one answer, and a conversation of many."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable

from supervisor.cli.answer import Answer, show, speed_text, stream
from supervisor.cli.background import ensure
from supervisor.cli.client import Client, Json
from supervisor.cli.daemon import Daemon
from supervisor.cli.exits import OK
from supervisor.cli.installing import engine_of
from supervisor.cli.loading import load, parse_target
from supervisor.cli.options import add_background, require
from supervisor.cli.progress import progress
from supervisor.cli.prose import is_terminal
from supervisor.cli.render import dim, note, print_json
from supervisor.cli.talking.commands import COMMANDS, Hands, assignment, check_sees, model_of, run_command
from supervisor.cli.talking.conversation import Conversation
from supervisor.cli.talking.images import image_part
from supervisor.errors import SupervisorError
from supervisor.system.paths import places

_HELP = "Ctrl-C stops an answer · /help lists the commands · /exit or Ctrl-D ends"


def add_talking(parser: argparse.ArgumentParser) -> None:
    """Add the options of whoever asks a model."""
    add = parser.add_argument
    add("-s", "--system", metavar="TEXT", help="the system message")
    add("-i", "--image", metavar="FILE", action="append", default=[], help="an image that goes with the message")
    add("--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter: --set temperature=0.2")
    add_background(parser)


def talk(args: argparse.Namespace, model: str | None, message: str | None) -> int:
    """Answer one message; without one, hold a conversation. `model` is what `load` takes; None: the loaded one."""
    require(message is not None or not args.json, "A conversation has no JSON form; give a message or pipe one in.")
    settings = dict(assignment(text) for text in args.set)
    images = [image_part(name) for name in args.image]
    with progress() as report:
        daemon = ensure(args, report)
        engine_of(args, daemon, report)
        target = parse_target(model) if model else _default_model(daemon)
        found = model_of(load(daemon, {"target": target}, report))
    about = Conversation(found[0], args.system, settings, found[1], images)
    if images:
        check_sees(about)
    if message is None:
        _converse(daemon, about)
    elif args.json:
        print_json({"model": about.model, **_whole(daemon.client, about.say(message)).as_json()})
    else:
        show(daemon.client, about.say(message), Answer(), thoughts=args.thoughts or is_terminal(sys.stdout))
    return OK


def _whole(client: Client, request: Json) -> Answer:
    answer = Answer()
    for _ in stream(client, request, answer):
        pass
    return answer


def _default_model(daemon: Daemon) -> str:
    ready = [model["id"] for model in daemon.models if model["state"] == "ready"]
    return ready[0] if len(ready) == 1 else "demo"


def _converse(daemon: Daemon, about: Conversation) -> None:
    note(dim(f"{about.model} · {_HELP}"))
    read = _reader(daemon.client)
    hands = Hands(lambda target: _load(daemon, target), lambda request: _answer(daemon.client, about, request))
    while True:
        try:
            _turn(about, read(), hands)
        except KeyboardInterrupt:
            note("")
        except EOFError:
            return
        except SupervisorError as error:
            note(f"error: {error.message} [{error.code}]")


def _reader(client: Client) -> Callable[[], str]:
    """Return what reads the next message: the line editor, or plain lines where the terminal cannot move its cursor."""
    if not is_terminal(sys.stdout):
        return lambda: input("> ").strip()
    from supervisor.cli.talking.editor import Editor  # noqa: PLC0415 - 100 ms that only a conversation pays

    return Editor(places(os.environ).chat_history, tuple(COMMANDS), lambda: _names(client)).read


def _turn(about: Conversation, line: str, hands: Hands) -> None:
    if line.startswith("/"):
        run_command(about, line, hands)
    elif line:
        hands.ask(about.say(line))


def _answer(client: Client, about: Conversation, request: Json) -> None:
    """Show the answer and keep what came of it, also where somebody stopped it; nothing of one that failed."""
    answer = Answer()
    try:
        show(client, request, answer)
    except KeyboardInterrupt:
        note("(cancelled)")
    about.take(answer.content)
    if told := speed_text(answer.timings):
        note(dim(told))


def _load(daemon: Daemon, target: str) -> Json:
    with progress() as report:
        return load(daemon, {"target": parse_target(target)}, report)


def _names(client: Client) -> Iterable[str]:
    try:
        return [str(model["id"]) for model in client.get("/api/v1/models")["models"]]
    except (SupervisorError, LookupError, TypeError):
        return ()
