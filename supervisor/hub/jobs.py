"""Jobs in processes of their own, which can be ended at any moment: one JSON line in, and JSON lines out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import supervisor
from supervisor.system.child import Child, StopGrace

Json = dict[str, Any]

_BOOT: Final = (
    "import sys; root, name = sys.argv.pop(1), sys.argv.pop(1); root in sys.path or sys.path.insert(0, root); "
    "import importlib; sys.exit(importlib.import_module(name).main())"
)
_GRACE: Final = StopGrace(ask_s=0, term_s=0.25)  # twice, then SIGKILL, within the second that a cancellation may take


async def run_job(
    module: str, job: Json, env: Mapping[str, str], heard: Callable[[Json], None], record_dir: Path | None
) -> Json:
    """Have a module's `main` do a job; return the last line that it says, an error line if it ends without a word.

    heard: is given every line, each with an `event`. record_dir: where the process is noted, so that a later daemon
    ends what a killed one left. Cancelling ends the process before the cancellation goes on.
    """
    last: Json = {}
    errors: deque[str] = deque(maxlen=5)

    def line(raw: bytes) -> None:
        nonlocal last
        with contextlib.suppress(ValueError, RecursionError):
            last = json.loads(raw)
            heard(last)

    root = str(Path(supervisor.__file__).parents[1])
    child = await Child.spawn(
        [sys.executable, "-I" if sys.flags.isolated else "-P", "-c", _BOOT, root, module],
        env=env,
        on_stdout=line,
        on_stderr=lambda raw: errors.append(raw.decode("utf-8", "replace")),
        record_dir=record_dir,
    )
    try:
        child.write_line(json.dumps(job).encode())
        how = await child.exit
    finally:
        await asyncio.shield(child.stop(ask=None, grace=_GRACE))
    if how.code != 0 and last.get("event") != "error":
        told = "; ".join(errors) or "it said nothing"
        return {"event": "error", "kind": "failed", "message": f"the process ended by {how}: {told}"}
    return last
