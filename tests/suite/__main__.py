"""Run llama.cpp's server tests, directly and through us, and write the figures: `python -m tests.suite [FILE …]`.

With files only they run, nothing is written, and every difference is printed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.suite.compare import differences
from tests.suite.known import reason_of
from tests.suite.report import made, write_page
from tests.suite.runner import MODES, Suite
from tests.support.engine_binary import find_engine_binary
from tests.support.llama_source import llama_source


def main(files: list[str]) -> int:
    """Return 1 if a difference is not explained."""
    with tempfile.TemporaryDirectory(prefix="suite-") as scratch:
        suite = Suite(llama_source(), find_engine_binary(os.environ), Path(scratch))
        jobs = [(mode, file) for file in files or suite.files() for mode in MODES]
        found = suite.run_all(jobs, os.cpu_count() or 1)
    direct, through = found["direct"], found["through"]
    differ = differences(direct, through)
    for test, what in differ.items():
        sys.stdout.write(f"{test}: {what}\n  {reason_of(test) or 'NOT EXPLAINED'}\n")
    if files:
        sys.stdout.write(made(direct, through))
    else:
        write_page(direct, through)
    return int(any(reason_of(test) is None for test in differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
