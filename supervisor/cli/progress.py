"""Progress of long waits on stderr: a moving bar on a terminal, a line per stage elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

from supervisor.cli.prose import clipped, columns, is_terminal
from supervisor.cli.render import note
from supervisor.core.text.plaintext import one_line
from supervisor.system.terminal import obeyed

Report = Callable[[str, float | None], None]
"""Takes a text that names the stage, and how much of it is done (0..1) or None."""

_BESIDE = 46  # columns of a line that bar and clock take
_TELLING, _TELLING_SECONDS = (
    0.02,
    3.0,
)  # how much of a stage must be done, and for how long it must last, to foretell it
_TELL_MINUTES, _TELL_HOURS = 90, 120  # from so many seconds on in minutes, from so many minutes on in hours


@contextlib.contextmanager
def progress() -> Iterator[Report]:
    """Give a reporter for one wait; what it drew on a terminal is gone afterwards."""
    if not is_terminal(sys.stderr):
        yield _line_reporter()
        return
    from rich import progress as rich  # noqa: PLC0415 - 60 ms that only a terminal pays
    from rich.console import Console  # noqa: PLC0415 - as above

    spinner = (rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False))
    parts = (*spinner, rich.BarColumn(bar_width=30), rich.TimeElapsedColumn())
    with rich.Progress(*parts, console=Console(file=obeyed(sys.stderr)), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(text: str, fraction: float | None) -> None:
            shown = clipped(one_line(text), max(columns(sys.stderr) - _BESIDE, _BESIDE // 2))
            bar.update(task, description=shown, total=None if fraction is None else 1.0, completed=fraction or 0.0)

        yield report


def _line_reporter() -> Report:
    last: list[str] = []

    def report(text: str, fraction: float | None) -> None:
        if text and last[-1:] != [text]:
            last[:] = [text]
            note(text)

    return report


class TimeLeft:
    """Foretells how long a stage still takes, if it goes on as it went so far.

    Args:
        clock: seconds, forward only.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = (0.0, 0.0)
        self._last: float | None = None

    def text(self, fraction: float | None) -> str:
        """Take in how much is done (0..1; less than before, or None: another stage); return `about 3 min left`.

        Nothing while too little is done to tell.
        """
        now, last = self._clock(), self._last
        self._last = fraction
        if fraction is None:
            return ""
        if last is None or fraction < last:
            self._began = (now, fraction)
        done, spent = fraction - self._began[1], now - self._began[0]
        if done < _TELLING or spent < _TELLING_SECONDS or fraction >= 1:
            return ""
        return f"about {_rough(spent * (1 - fraction) / done)} left"


def _rough(seconds: float) -> str:
    """Round as a guess is told: `20 s`, `3 min`, `2 h`."""
    if seconds < _TELL_MINUTES:
        return f"{max(10 * math.ceil(seconds / 10), 10)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < _TELL_HOURS else f"{round(minutes / 60)} h"
