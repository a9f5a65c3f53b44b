"""The part of docs/compatibility.md that `python -m tests.suite` makes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from tests.suite.compare import Figures, Results, differences, figures
from tests.suite.known import reason_of
from tests.support.made import ROOT

PAGE = ROOT / "docs" / "compatibility.md"
PLACE = re.compile(r"(?<=<!-- made: suite -->\n).*?(?=<!-- end -->)", re.DOTALL)

_COLUMNS = ("file", "tests", "hold directly", "of these through us", "need the real model", "of these alike")
_HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n"


_MOST = 8  # tests that are named


def write_page(direct: Results, through: Results) -> None:
    """Write the figures of two runs into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(PLACE.sub(lambda _: made(direct, through), text), encoding="utf-8")


def made(direct: Results, through: Results) -> str:
    """Return the tables of two runs."""
    return f"{_table(figures(direct, through))}\n{_reasons(differences(direct, through))}"


def _table(found: Mapping[str, Figures]) -> str:
    total = sum(found.values(), Figures(0, 0, 0, 0, 0))
    rows = [*sorted(found.items()), ("all", total)]
    return _HEAD + "".join(f"| {name} | {' | '.join(map(str, vars(one).values()))} |\n" for name, one in rows)


def _reasons(found: Mapping[str, str]) -> str:
    """Every reason with its tests, whatever their parameters."""
    tests: dict[str, dict[str, int]] = {}
    for test in sorted(found):
        names = tests.setdefault(reason_of(test) or "Not explained.", {})
        plain = test.partition("[")[0].replace(".py::test_", ": ")
        names[plain] = names.get(plain, 0) + 1
    rows = (f"| {why} | {_listed(names.items())} |\n" for why, names in sorted(tests.items()))
    return "| what differs, and why | tests |\n|---|---|\n" + "".join(rows)


def _listed(names: Collection[tuple[str, int]]) -> str:
    """Every test; of many, how many in each file."""
    if len(names) > _MOST:
        files = Counter[str]()
        for name, count in names:
            files[name.partition(":")[0]] += count
        names = files.items()
    return ", ".join(f"`{name}`" + (f" ({count})" if count > 1 else "") for name, count in names)
