"""The commands of a conversation: what is typed with a `/` before it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from supervisor.cli.client import Json
from supervisor.cli.render import note, say
from supervisor.cli.talking.conversation import Conversation
from supervisor.cli.talking.images import image_part
from supervisor.cli.talking.saving import save
from supervisor.errors import UsageError
from supervisor.system.paths import places

_NOT_SETTABLE = frozenset({"model", "messages", "stream"})


@dataclass(frozen=True)
class Hands:
    """What a command may do beside changing the conversation: load a model, ask a request."""

    load: Callable[[str], Json]
    ask: Callable[[Json], None]


@dataclass(frozen=True)
class Command:
    """One command: what follows its name, what it does in words, and the function that does it."""

    follows: str
    does: str
    run: Callable[[Conversation, str, Hands], None]


def run_command(talk: Conversation, line: str, hands: Hands) -> None:
    """Do what a line that begins with `/` says. Raises UsageError, and whatever loading and asking raise."""
    name, _, rest = line.partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise UsageError(f"There is no {name}; /help lists the commands.")
    command.run(talk, rest.strip(), hands)


def assignment(text: str) -> tuple[str, object]:
    """Split `NAME VALUE` or `NAME=VALUE`; the value is JSON, else text. Raises UsageError for a name that is not free.

    A value that is left out, or `null`, is None: the parameter is no longer sent.
    """
    name, _, value = text.replace("=", " ", 1).partition(" ")
    if name in _NOT_SETTABLE:
        raise UsageError(f"`{name}` is not set here; /help lists the commands.")
    try:
        return name, json.loads(value) if value.strip() else None
    except (ValueError, RecursionError):
        return name, value.strip()


def _help(talk: Conversation, rest: str, hands: Hands) -> None:
    width = max(len(f"{name} {one.follows}") for name, one in COMMANDS.items())
    for name, one in COMMANDS.items():
        say(f"{f'{name} {one.follows}':<{width}}  {one.does}")
    say("Alt-Enter, or a \\ at the end of a line: a further line. Tab completes. Ctrl-C stops an answer.")


def _system(talk: Conversation, rest: str, hands: Hands) -> None:
    if rest:
        talk.system = None if rest == "none" else rest
    say(f"system: {talk.system or 'none'}")


def _model(talk: Conversation, rest: str, hands: Hands) -> None:
    if rest:
        talk.model, talk.inputs = model_of(hands.load(rest))
    say(f"model: {talk.model}")


def _set(talk: Conversation, rest: str, hands: Hands) -> None:
    if rest:
        name, value = assignment(rest)
        talk.settings = {key: old for key, old in talk.settings.items() if key != name}
        if value is not None:
            talk.settings[name] = value
    for name, value in talk.settings.items():
        say(f"{name} = {json.dumps(value, ensure_ascii=False)}")
    if not talk.settings:
        say("nothing is set; /set temperature 0.2 sets a parameter of the requests")


def _image(talk: Conversation, rest: str, hands: Hands) -> None:
    if not rest:
        raise UsageError("Name the file: /image photo.jpg.")
    check_sees(talk)
    talk.images.append(image_part(rest))
    count = len(talk.images)
    say(f"{count} image{'s' if count > 1 else ''} will go with the next message")


def _save(talk: Conversation, rest: str, hands: Hands) -> None:
    if not talk.messages:
        raise UsageError("There is nothing to save yet.")
    say(f"saved to {save(talk, rest, places(os.environ))}")


def _retry(talk: Conversation, rest: str, hands: Hands) -> None:
    request = talk.say_again()
    if request is None:
        raise UsageError("Nothing has been asked yet.")
    hands.ask(request)


def _clear(talk: Conversation, rest: str, hands: Hands) -> None:
    talk.forget()
    note("(forgotten)")


def check_sees(talk: Conversation) -> None:
    """Raise UsageError where the model is known to take no images."""
    if talk.inputs is not None and "image" not in talk.inputs:
        raise UsageError(f"{talk.model} takes no images; load a model that has a projector.", param="image")


def model_of(status: Json) -> tuple[str, tuple[str, ...] | None]:
    """Return a loaded model's id, and what it takes where that is known."""
    abilities = status.get("abilities")
    return str(status["id"]), tuple(abilities["inputs"]) if abilities else None


def _exit(talk: Conversation, rest: str, hands: Hands) -> None:
    raise EOFError


COMMANDS: Mapping[str, Command] = {
    "/help": Command("", "list the commands", _help),
    "/system": Command("[TEXT]", "show or change the system message; none: without one", _system),
    "/model": Command("[MODEL]", "show the model, or go on with another one", _model),
    "/set": Command(
        "[NAME VALUE]", "show or set parameters of the requests; without a value: as the model has it", _set
    ),
    "/image": Command("FILE", "send an image with the next message", _image),
    "/retry": Command("", "answer the last message again", _retry),
    "/clear": Command("", "forget what was said", _clear),
    "/save": Command(
        "[FILE]", "write the conversation to a file, as JSON if it ends in .json, else as Markdown", _save
    ),
    "/exit": Command("", "end; so does Ctrl-D", _exit),
}
"""The commands by name, as `/help` lists them."""
