"""Every part of a page that is made from the code and needs no engine.

`python -m tests.support.pages` writes them all anew, and prints the files that it changed. The examples of docs/rest.md
are asked of a running daemon (`rest_examples`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from supervisor import errors
from tests.support import cli_page, dialect_table, error_table, module_table, option_tables, plan_example
from tests.test_house import FLOORS

ROOT = Path(__file__).parents[2]
FILES = tuple(
    dict.fromkeys((
        *(part.path for part in option_tables.PARTS),
        cli_page.PAGE,
        dialect_table.PAGE,
        error_table.PAGE,
        Path(errors.__file__),
        module_table.PAGE,
        plan_example.PAGE,
    ))
)


def write() -> list[Path]:
    """Write every such part anew. Return the files that changed."""
    before = {path: path.read_bytes() for path in FILES}
    option_tables.write()
    cli_page.write()
    dialect_table.write()
    error_table.write()
    module_table.write(FLOORS)
    plan_example.write()
    return [path for path, content in before.items() if path.read_bytes() != content]


if __name__ == "__main__":
    for changed in write():
        sys.stdout.write(f"{changed.relative_to(ROOT)}\n")
