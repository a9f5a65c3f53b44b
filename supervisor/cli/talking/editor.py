"""The line that is typed: edited, remembered, of several lines, with completion; by prompt_toolkit.

Only a conversation imports this module: prompt_toolkit takes 100 ms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from supervisor.cli.prose import columns
from supervisor.cli.talking.history import read_history, write_history
from supervisor.system.terminal import obeyed

_LINES = 24
_PATHS = frozenset({"/image", "/save"})


class Editor:
    """Reads what is typed at a terminal that can move its cursor.

    Args:
        file: where what was typed is kept.
        commands: names, each with its `/`.
        models: returns the names of models, for `/model`.
    """

    def __init__(self, file: Path, commands: Sequence[str], models: Callable[[], Iterable[str]]) -> None:
        self._file = file
        self._typed = read_history(file)
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,
            prompt_continuation="… ",
            history=InMemoryHistory(self._typed),
            completer=_Words(commands, models),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=_keys(),
            output=_output(),
        )

    def read(self) -> str:
        """Return what is typed next. Raises KeyboardInterrupt for Ctrl-C, EOFError for Ctrl-D."""
        text = self._session.prompt().strip()
        if text:
            self._typed.append(text)
            write_history(self._file, self._typed)
        return text


class _Words(Completer):
    """Completes commands, and behind them models and files."""

    def __init__(self, commands: Sequence[str], models: Callable[[], Iterable[str]]) -> None:
        self._commands = commands
        self._models = models
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        name, behind, rest = document.text_before_cursor.partition(" ")
        if not behind:
            return _beginning(self._commands, name) if name.startswith("/") else ()
        if name in _PATHS:
            return self._paths.get_completions(Document(rest), complete_event)
        return _beginning(self._models(), rest) if name == "/model" else ()


def _beginning(words: Iterable[str], begin: str) -> Iterable[Completion]:
    return [Completion(word, -len(begin)) for word in words if word.startswith(begin)]


def _keys() -> KeyBindings:
    """Return the keys: Enter sends, Alt-Enter and a backslash before Enter begin a further line."""
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def further(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _output() -> Output:
    """Return the terminal; it is not asked where its cursor is, because not every one answers."""
    stream = obeyed(sys.stdout)
    return Vt100_Output(stream, lambda: Size(_rows(), columns(stream)), os.environ.get("TERM"), enable_cpr=False)


def _rows() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or _LINES
    except (OSError, ValueError):
        return _LINES
