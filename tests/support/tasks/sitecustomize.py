"""On the path of a daemon under test: at SIGUSR2 it writes how many asyncio tasks there are to the file TASKS names."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path


def _count(_signal: int, _frame: object) -> None:
    Path(os.environ["TASKS"]).write_text(str(len(asyncio.all_tasks())), encoding="ascii")


if "TASKS" in os.environ:
    signal.signal(signal.SIGUSR2, _count)
