"""Every part of a page that is made from the code and needs no engine.

`python -m tests.support.pages` writes them all anew, and prints the files that it changed. The examples of docs/rest.md
are asked of a running daemon (`rest_examples`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.support import (
    cli_page,
    dialect_table,
    error_table,
    grafana,
    leaving,
    man_page,
    metric_table,
    module_table,
    option_tables,
    parameter_table,
    plan_example,
    reference_pages,
    route_table,
    state_table,
    trouble_page,
)
from tests.support.made import ROOT, Made
from tests.test_house import FLOORS

MADE: tuple[Made, ...] = (
    *option_tables.PARTS,
    cli_page.VERBS_AND_OPTIONS,
    man_page.MAN,
    dialect_table.TABLE,
    error_table.TABLE,
    error_table.TREE,
    metric_table.TABLE,
    grafana.FILE,
    parameter_table.TABLE,
    parameter_table.OPTIONS,
    *reference_pages.PARTS,
    route_table.TABLE,
    *leaving.TABLES,
    Made(module_table.PAGE, module_table.TABLE, partial(module_table.table, FLOORS)),
    state_table.STATES,
    trouble_page.ERRORS,
    plan_example.PLAN,
)


def write(every: Iterable[Made] = MADE) -> list[Path]:
    """Write what is stale anew. Return the files that have changed."""
    changed = []
    for part in every:
        if part.is_stale():
            part.write()
            changed.append(part.path)
    return changed


if __name__ == "__main__":
    for path in dict.fromkeys(write()):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
