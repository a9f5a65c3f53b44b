"""Progress of long waits on stderr: a moving bar on a terminal, a line per stage elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from supervisor.cli.prose import is_terminal
from supervisor.cli.render import note
from supervisor.core.text.plaintext import one_line
from supervisor.system.terminal import obeyed

Report = Callable[[str, float | None], None]
"""Takes a text that names the stage, and how much of it is done (0..1) or None."""


@contextlib.contextmanager
def progress() -> Iterator[Report]:
    """Give a reporter for one wait; what it drew on a terminal is gone afterwards."""
    if not is_terminal(sys.stderr):
        yield _line_reporter()
        return
    from rich import progress as rich  # noqa: PLC0415 - 60 ms that only a terminal pays
    from rich.console import Console  # noqa: PLC0415 - as above

    texts = (rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False))
    columns = (*texts, rich.BarColumn(bar_width=30), rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=Console(file=obeyed(sys.stderr)), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(text: str, fraction: float | None) -> None:
            shown = one_line(text)
            bar.update(task, description=shown, total=None if fraction is None else 1.0, completed=fraction or 0.0)

        yield report


def _line_reporter() -> Report:
    last: list[str] = []

    def report(text: str, fraction: float | None) -> None:
        if text and last[-1:] != [text]:
            last[:] = [text]
            note(text)

    return report
