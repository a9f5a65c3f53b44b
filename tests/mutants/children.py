"""What a process that a test starts runs of the program: `Sandbox.watch` has it run while `supervisor` is imported.

Called with `FOLDER`, where `tests/mutants/contexts.py` writes, and `SOURCE`, the program to watch. The lines are
written when the process ends by itself, into a file whose name ends in `.one` where the test that started it was still
running then, else in `.many`. Of a process that is killed nothing is known.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path


def watch(folder: Path, source: str) -> None:
    """Note what this process runs from here on."""
    import coverage  # noqa: PLC0415 - only where the test's own process is not watched already

    begun = (folder / "now").read_text("utf-8")
    file = folder / f"child-{os.getpid()}-{os.urandom(4).hex()}"
    mine = os.getpid()
    watching = coverage.Coverage(
        data_file=str(file), branch=False, source=[source], config_file=False, context=begun, messages=False
    )

    def ended() -> None:
        if os.getpid() != mine:
            return
        watching.stop()
        watching.save()
        same = (folder / "now").read_text("utf-8") == begun
        file.rename(file.with_suffix(".one" if same else ".many"))

    atexit.register(ended)
    watching.start()


if __name__ == "mutants-child" and "tests.mutants.contexts" not in sys.modules:
    watch(Path(globals()["FOLDER"]), globals()["SOURCE"])
