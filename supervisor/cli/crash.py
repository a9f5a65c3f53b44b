"""Where the traceback of a bug goes: a file, so that the screen shows one sentence."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping

from supervisor.owned import inner_folder
from supervisor.paths import places


def write_traceback(error: BaseException, env: Mapping[str, str]) -> str:
    """Append the traceback to the state folder's `logs/cli-errors.log`; a sentence that says where it is."""
    text = "".join(traceback.format_exception(error))
    path = places(env).state / "logs" / "cli-errors.log"
    try:
        inner_folder(path.parent)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}\n{text}\n")
    except OSError as problem:
        return f"The traceback could not be written to {path} ({problem.strerror}):\n{text}"
    return f"The traceback is in {path}."
