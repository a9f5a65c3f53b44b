"""The daemon of a backend, found or started, and forgotten by the system when it has ended."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from supervisor.cli.daemon import Daemon


class Finder:
    """Finds the daemon, or starts one; never twice at a time.

    A daemon that was started here is this process's child, so it is waited for: else it would stay as a zombie, and
    count as alive, for as long as the backend lives.

    Args:
        ensure: returns the daemon, and starts one where none runs.
    """

    def __init__(self, ensure: Callable[[], Daemon]) -> None:
        self._ensure = ensure
        self._lock = threading.Lock()
        self._seen: set[int] = set()

    def __call__(self) -> Daemon:
        """Return the daemon. Raises as `ensure`."""
        with self._lock:
            daemon = self._ensure()
            pid = daemon.status.get("pid")
            if isinstance(pid, int) and pid not in self._seen:
                self._seen.add(pid)
                threading.Thread(target=self._wait, args=(pid,), daemon=True).start()
            return daemon

    def _wait(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):  # somebody else's
            os.waitpid(pid, 0)
        with self._lock:
            self._seen.discard(pid)
