"""The end of this program with the one that started it, and what it is told on the way."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from typing import Final

NOT_LOADED: Final = 3
"""Exit status where the model could not be loaded."""

DIED: Final = 4
"""Exit status where the thread that computes has ended."""

_PR_SET_PDEATHSIG = 1
_PREFIX = "cmd_child_to_router:state:"


def end_with_parent() -> None:
    """End as soon as the standard input does, and with the parent where the system can say that."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, name="parent", daemon=True).start()


def tell(state: str, **payload: object) -> None:
    """Write a line of llama-server's protocol: `loading`, `ready`."""
    print(_PREFIX + json.dumps({"state": state, "payload": payload}), flush=True)  # noqa: T201 - a protocol


def say(line: str) -> None:
    """Write a line of the log."""
    sys.stderr.write(line[:2000].replace("\n", " ") + "\n")
    sys.stderr.flush()


def end(status: int) -> None:
    """End now, whatever the threads do."""
    os._exit(status)


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        continue
    end(0)
