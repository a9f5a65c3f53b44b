"""The sampler of changes: what it changes, whom it asks, and its list of changes without effect."""

from __future__ import annotations

import random
from pathlib import Path

from tests.mutants.__main__ import Sampler, near_and_wide, report, runners
from tests.mutants.changes import Change, changes_of
from tests.mutants.known import Known, read_known, stale, without_known
from tests.mutants.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
SOURCE = '''"""Documentation."""
LIMIT: Final[int] = 416


def kind(size: int, name: str = "é") -> str | None:
    """Documentation."""
    if not name and size <= LIMIT or size:
        calls.append(name)
        return f"é{size}"
    return name
'''


def of(line: int) -> set[tuple[str, str]]:
    """The changes on a line: what stood there, what stands there then."""
    return {(one.old, one.new) for one in changes_of("x.py", SOURCE) if one.line == line}


def test_each_kind_of_change() -> None:
    assert of(1) == set()
    assert of(2) == {("416", "417")}
    assert of(5) == {('"é"', "''")}
    assert of(6) == set()
    assert of(7) == {
        ("not name and size <= LIMIT or size", "((not name and size <= LIMIT) and size)"),
        ("not name and size <= LIMIT", "(not name or size <= LIMIT)"),
        ("not name", "name"),
        ("size <= LIMIT", "(size < LIMIT)"),
    }
    assert of(8) == {("calls.append(name)", "pass")}
    assert of(9) == {('return f"é{size}"', "return None")}
    assert of(10) == {("return name", "return None")}


def test_a_change_leaves_all_else_as_it_was() -> None:
    for change in changes_of("x.py", SOURCE):
        changed = change.applied(SOURCE)
        compile(changed, "x.py", "exec")
        assert changed.replace(change.new, change.old, 1) == SOURCE or changed.count(change.new) > 1
        assert change.text in SOURCE


def test_every_file_of_the_program_can_be_changed() -> None:
    for path in (ROOT / "supervisor").rglob("*.py"):
        source = path.read_text("utf-8")
        for change in changes_of(str(path), source)[:3]:
            compile(change.applied(source), str(path), "exec")


def test_the_near_and_wide_a_line_or_of_its_file() -> None:
    change = changes_of("x.py", SOURCE)[0]
    assert change.line == 2
    assert runners(change, {"x.py": {2: frozenset({""}), 7: frozenset({"b", "a"})}}) == ["a", "b"]
    assert runners(change, {"x.py": {2: frozenset({"", "c"}), 7: frozenset({"a"})}}) == ["c"]


def test_whose_tests_notice() -> None:
    near, wide = near_and_wide("core/toolcalls")
    assert near == ["tests/core/toolcalls"]
    assert "tests/core/recovery" in wide
    assert all((ROOT / one).exists() for one in wide)


def test_entries_of_changes_without_effect_are_still_of_the_program() -> None:
    assert stale(ROOT, read_known()) == []
    assert all(len(entry.why) > 10 for entry in read_known())


def test_a_known_change_is_left_out_wherever_its_line_is() -> None:
    changes = changes_of("x.py", SOURCE)
    first = changes[0]
    known = Known("x.py", "LIMIT: Final[int] = 416", "416", "417", "the reason")
    assert without_known(changes, [known]) == [one for one in changes if one != first]
    moved = changes_of("x.py", "\n\n" + SOURCE)
    assert len(without_known(moved, [known])) == len(moved) - 1
    assert stale(ROOT, [known]) == [known]


def test_the_report_counts_by_package() -> None:
    changes = [change_in("supervisor/core/a.py"), change_in("supervisor/core/b.py"), change_in("supervisor/api/c.py")]
    assert report(changes, changes[:1]) == [
        f"{'api':<32}    1 of    1 noticed (100%)",
        f"{'core':<32}    1 of    2 noticed (50%)",
        f"{'all':<32}    2 of    3 noticed (67%)",
    ]


def change_in(path: str) -> Change:
    """Any change of that file."""
    return Change(path, 1, 0, 1, "a", "b", "a")


def test_a_change_is_noticed_in_a_copy(tmp_path: Path) -> None:
    """The whole way, by tests that run the line, and not by others."""
    box = Sandbox(ROOT, tmp_path)
    path = "supervisor/core/sse.py"
    source = (ROOT / path).read_text("utf-8")
    change = next(one for one in changes_of(path, source) if one.new == "return None")
    said: list[str] = []
    sampler = Sampler([box], said.append, random.Random(0))
    lines = {path: {change.line: frozenset({"tests/core/test_ggml.py", "tests/core/test_sse.py"})}}
    assert sampler.survivors([change], lines, few=True) == []
    assert said == [f"noticed  {change}"]
    others = {path: {change.line: frozenset({"tests/core/test_ggml.py"})}}
    assert sampler.survivors([change], others, few=False) == [change]
    assert (tmp_path / path).read_text("utf-8") == source
    assert (ROOT / path).read_text("utf-8") == source
