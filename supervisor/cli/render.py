"""Output for the screen: tables, JSON, sizes and times.

A terminal gets colours and tables of its width; anything else gets plain aligned text, so that what scripts see never
changes with the screen. What a terminal must not obey, `terminal` keeps from it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.cli.prose import WordWrap, columns, fitted, is_terminal
from supervisor.cli.tables import laid_out
from supervisor.core.text.plaintext import plain
from supervisor.system.terminal import BOLD, DIM, OFF, obeyed

_STATE_WORDS = {"reserved": "starting", "backoff": "waiting to retry"}


def print_json(value: object) -> None:
    """Print one JSON value: indented on a terminal, else on one line."""
    print(_dumped(value, indent=2 if is_terminal(sys.stdout) else None), flush=True)


def print_json_line(value: object) -> None:
    """Print one JSON value of a stream, on a line of its own."""
    print(_dumped(value), flush=True)


def _dumped(value: object, indent: int | None = None) -> str:
    """Return JSON text that can be written.

    Half a surrogate pair, which no encoding has, is escaped with all the rest.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; on a terminal it is laid out for its width."""
    width = columns(sys.stdout) - 1 if is_terminal(sys.stdout) else None
    for line in laid_out(headers, rows, width):
        print(bold(line.text) if line.is_head else line.text)


def dim(text: str) -> str:
    """Return `text`, dimmed if stdout shows colours."""
    return f"{DIM}{text}{OFF}" if _has_colour() and text else text


def bold(text: str) -> str:
    """Return `text` in bold if stdout shows colours."""
    return f"{BOLD}{text}{OFF}" if _has_colour() and text else text


def write(text: str, *, quietly: bool = False) -> None:
    """Write text to stdout at once; `quietly`: dimmed. No newline is added."""
    sys.stdout.write(dim(text) if quietly else text)
    sys.stdout.flush()


class Pieces:
    """Prose on stdout that arrives in pieces; on a terminal its lines end between words."""

    def __init__(self) -> None:
        self._wrap = WordWrap(columns(sys.stdout)) if is_terminal(sys.stdout) else None

    def write(self, text: str, *, quietly: bool = False) -> None:
        """Write text to stdout at once; `quietly`: dimmed. No newline is added."""
        if self._wrap is None:
            write(text, quietly=quietly)
            return
        placed = self._wrap.add(plain(text))
        obeyed(sys.stdout).write(dim(placed) if quietly else placed)  # words that do not fit are taken back
        sys.stdout.flush()


def note(text: str) -> None:
    """Print a remark on stderr."""
    print(fitted(text, sys.stderr), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print a sentence, or several, on stdout."""
    print(fitted(text, sys.stdout), flush=True)


def size(count: int | None) -> str:
    """Format bytes for people: `512 B`, `1.5 KiB`, `12 GiB`; `-` for None."""
    if count is None:
        return "-"
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1023.5:
            break
        value, unit = value / 1024, bigger
    digits = 1 if unit != "B" and value < 9.95 else 0
    return f"{value:.{digits}f} {unit}"


def ago(epoch: float | None) -> str:
    """Format how long ago `epoch` (seconds since 1970) was: `12s`, `5m`, `3h`, `2d`; `-` for None."""
    if epoch is None:
        return "-"
    return duration(time.time() - epoch)


def duration(length_in_seconds: float) -> str:
    """Format a length of time for people: `12s`, `5m`, `3h`, `2d`."""
    seconds = max(0, int(length_in_seconds))
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def cell(value: object) -> str:
    """Format a table cell: `-` for None."""
    return "-" if value is None else str(value)


def state_word(state: object) -> str:
    """Return the state of a model or an engine in people's words; --json has the interface's own."""
    return _STATE_WORDS.get(str(state), str(state))


def _has_colour() -> bool:
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def token_rate(tokens: float) -> str:
    """Format tokens per second: as many digits as are foretold, `1,670`, `38` or `0.42`."""
    return f"{float(f'{tokens:.3g}'):,.0f}" if tokens >= 10 else f"{tokens:.2g}"


def speed_cell(told: Mapping[str, Any] | None) -> str:
    """Format what a plan says of a model's speed: `38 … 21`, from the first token to behind a long text."""
    speed = (told or {}).get("speed")
    if speed is None:
        return cell((told or {}).get("error"))
    decode = {int(depth): value for depth, value in speed["decode_tokens_per_second"].items()}
    first, last = (token_rate(decode[depth]) for depth in (min(decode), max(decode)))
    return first if first == last else f"{first} … {last}"
