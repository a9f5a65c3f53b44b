"""What the system refuses to write, as an error that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final

from supervisor.errors import SystemRefused

_ELSEWHERE: Final = "or choose another folder (SUPERVISOR_HOME for the program's own files)."
_FORBIDDEN: Final = f"Make it writable for you, {_ELSEWHERE}"
_FULL: Final = f"Free some room on the disk, {_ELSEWHERE}"
_ADVICE: Final[Mapping[int, str]] = {
    errno.EROFS: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOTDIR: _FORBIDDEN,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"Raise the limit on the size of files (`ulimit -f`), {_ELSEWHERE}",
}
_MISSING: Final = {**_ADVICE, errno.ENOENT: _FORBIDDEN}


def refused(error: OSError, *, folder: bool = False) -> SystemRefused | None:
    """Return the error to tell in its place; None if nothing is known of it, as of a bug.

    folder: whether a missing file means a folder that could not be made.
    """
    advice = (_MISSING if folder else _ADVICE).get(error.errno or 0)
    return None if advice is None else SystemRefused(f"The system refused: {error}. {advice}")
