"""Exit codes, a promise to scripts.

0 ok · 1 failed · 2 usage · 3 the daemon cannot be reached · 4 the model does not fit · 130 interrupted
"""

from __future__ import annotations

from supervisor.errors import SupervisorError

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
DOES_NOT_FIT = 4
INTERRUPTED = 130

_BY_ERROR_CODE = {
    "usage": USAGE,
    "daemon_unreachable": UNREACHABLE,
    "does_not_fit": DOES_NOT_FIT,
}


def exit_code(error: SupervisorError) -> int:
    """Return the exit code for `error`, also for one that the daemon reported."""
    return _BY_ERROR_CODE.get(error.code, FAILED)
