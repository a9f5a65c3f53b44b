"""The options of a model with `source: command`, and what can be wrong between them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Final

from supervisor.core.options.kinds import Arguments, HttpStatuses, LongText, Memories, Name, Names, Slots
from supervisor.core.options.table import Mark, option
from supervisor.core.routes import ROUTES, route_of
from supervisor.engines.service import Service

READY_AT_ONCE: Final = "none"
"""A `ready` that asks no path: the engine is ready as soon as it takes connections."""

SOCKET: Final = "${SOCKET}"
PORT: Final = "${PORT}"

_APIS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_RUNNERS = frozenset({"docker", "podman"})


@dataclass(frozen=True)
class CommandOptions:
    """The options of a command's engine."""

    command: Arguments = option(
        "",
        "the program and its arguments; `${SOCKET}` or `${PORT}` in them is where it is to listen",
        Mark.CONFIGURATION,
        default=(),
        example='[whisper-server, -m, base.bin, --port, "${PORT}"]',
    )
    ready: LongText = option(
        "",
        "the path that is asked until it answers; `none`: ready as soon as it takes connections",
        Mark.CONFIGURATION,
        default="/health",
    )
    ready_statuses: HttpStatuses = option(
        "", "the statuses by which it says there that it is ready", Mark.CONFIGURATION, default=(200,), example="[200]"
    )
    model_name: Name | None = option("", "what it calls the model; left out: the model's id here", Mark.CONFIGURATION)
    apis: Names = option(
        "", "the paths that it answers", Mark.CONFIGURATION, default=_APIS, example="[/v1/audio/transcriptions]"
    )
    slots: Slots = option(
        "", "requests that it answers at the same time; more of them wait", Mark.CONFIGURATION, default=4
    )
    stop: Arguments = option(
        "",
        "a command that ends it, for containers; `${PID}` and what `command` knows stand for what they are there",
        Mark.CONFIGURATION,
        default=(),
    )
    memory: Memories = option(
        "",
        "what it will hold, by device (`CUDA0: 8g`, `CPU: 2g`); needed until it was measured",
        Mark.CONFIGURATION,
        default={},
        example="{CPU: 512m}",
    )

    @cached_property
    def service(self) -> Service:
        """Way in which it is asked."""
        paths = (route_of(path) for path in self.apis)
        return Service(frozenset(row.path for row in paths if row is not None), self.model_name, plain=True)

    @property
    def is_container(self) -> bool:
        """True if what runs is no child of the command, which only waits for it."""
        words = [PurePath(word).name for word in self.command[:2]]
        return len(words) == 2 and words[0] in _RUNNERS and words[1] == "run"

    @property
    def said_bytes(self) -> dict[str, int]:
        """Bytes by device that people say."""
        return {name: size << 20 for name, size in self.memory.items()}

    def identity(self, env: Mapping[str, str]) -> str:
        """Return the key by which it is remembered what this command, with these variables, holds."""
        text = json.dumps([self.command, sorted(env.items())])
        return f"command:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def placed(command: tuple[str, ...], absolute: Callable[[str], str]) -> tuple[str, ...]:
    """Return a command whose program, where it is a relative path and no name, is made absolute."""
    if not command or not command[0].startswith(("./", "../", "~/")):
        return command
    return (absolute(command[0]), *command[1:])


def complaints(options: CommandOptions) -> Iterator[tuple[str, str]]:
    """Yield what is wrong between options that are right by themselves, each with the option at fault."""
    text = "\n".join(options.command)
    if not options.command or not options.command[0]:
        yield "command", "name the program to run, and its arguments, as a list"
    elif (SOCKET in text) == (PORT in text):
        yield "command", f"say in it where to listen: {SOCKET} (a Unix socket, preferred) or {PORT}, one of them"
    if options.ready != READY_AT_ONCE and not options.ready.startswith("/"):
        yield "ready", f"must be a path such as /health, or {READY_AT_ONCE}"
    if options.is_container and not options.stop:
        yield "command", "a container outlives the command that started it: say how it is ended with `stop`"
    for path in options.apis:
        if route_of(path) is None:
            known = ", ".join(row.path for row in ROUTES)
            yield "apis", f"{path!r} is no path that is relayed here; there are {known}"
