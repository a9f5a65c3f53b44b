"""Write the traceback of a bug to a file, so that the screen shows one sentence."""

from __future__ import annotations

import contextlib
import tempfile
import time
import traceback
from collections.abc import Mapping

from supervisor.system.owned import inner_folder
from supervisor.system.paths import places

_MAX_BYTES = 1 << 20  # then it becomes the older one of two


def write_traceback(error: BaseException, env: Mapping[str, str]) -> str:
    """Append the traceback to the state folder's `logs/cli-errors.log`; return a sentence that says where it is.

    Where that folder cannot be written it goes to a new file of the temp folder.
    """
    text = f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}\n{''.join(traceback.format_exception(error))}\n"
    path = places(env).cli_errors
    with contextlib.suppress(OSError):
        inner_folder(path.parent)
        if path.exists() and path.stat().st_size > _MAX_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        return f"The traceback is in {path}."
    try:
        with tempfile.NamedTemporaryFile("w", prefix="supervisor-", suffix=".log", delete=False) as scratch:
            scratch.write(text)
    except OSError as problem:
        return f"The traceback could not be written ({problem.strerror})."
    return f"The traceback is in {scratch.name}."
