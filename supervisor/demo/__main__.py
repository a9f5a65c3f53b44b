"""`python -m supervisor.demo FOLDER`: make the built-in model there and print its path.

A process of its own keeps the maker's numpy out of the daemon's memory.
"""

import sys
from pathlib import Path

from supervisor.demo.builtin import ensure_demo_model

if __name__ == "__main__":
    print(ensure_demo_model(Path(sys.argv[1])))  # noqa: T201 - its output
