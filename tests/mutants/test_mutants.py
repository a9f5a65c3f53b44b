"""The sampler of changes: what it changes, whom it asks, and its list of changes without effect."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutants.__main__ import Sampler, drawn, near_and_wide
from tests.mutants.changes import Change, changes_of
from tests.mutants.known import Known, read_known, stale
from tests.mutants.maps import Map, mapped
from tests.mutants.report import Outcome, Verdict, table
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


def test_who_runs_a_line_or_else_its_file_quick_files_first() -> None:
    change = changes_of("x.py", SOURCE)[0]
    assert change.line == 2
    seconds = {"b.py::one": 1.0, "b.py::two": 0.5, "a.py::long": 2.0}
    run = {2: {""}, 7: {"b.py::one", "a.py::long"}, 8: {"b.py::two"}}
    assert Map({"x.py": run}, seconds).runners(change) == ["b.py::two", "b.py::one", "a.py::long"]
    assert Map({"x.py": {2: {"", "c"}, 7: {"a"}}}, {}).runners(change) == ["c"]
    assert Map({"x.py": {2: {""}}}, {"a": 1.0}).runners(change) == ["a"]


def test_whose_tests_notice() -> None:
    near, wide = near_and_wide("core/toolcalls")
    assert "tests/core/toolcalls/test_corpus.py" in near
    assert "tests/core/recovery/test_stream.py" in wide
    assert all((ROOT / one).is_file() for one in [*near, *wide])
    assert near_and_wide("core/toolcalls/automaton")[0] == near
    assert near_and_wide("core/sse")[0] == ["tests/core/test_sse.py"]


def test_a_map_is_kept_until_sources_or_the_test_change(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def watch(files: Sequence[str]) -> dict[str, Any]:
        asked.append(list(files))
        tests = [f"{file}::test" for file in files]
        return {"lines": {"supervisor/x.py": {"1": ["", *tests]}}, "seconds": dict.fromkeys(tests, 0.5)}

    for name in ("supervisor/x.py", "tests/test_a.py", "tests/test_b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n", "utf-8")
    files = ["tests/test_a.py", "tests/test_b.py"]
    first = mapped(tmp_path, tmp_path / "kept", "x", files, watch)
    assert first.lines == {"supervisor/x.py": {1: {"", "tests/test_a.py::test", "tests/test_b.py::test"}}}
    assert mapped(tmp_path, tmp_path / "kept", "x", files, watch) == first
    (tmp_path / files[1]).write_text("2\n", "utf-8")
    assert mapped(tmp_path, tmp_path / "kept", "x", files, watch) == first
    (tmp_path / "supervisor/x.py").write_text("2\n", "utf-8")
    assert mapped(tmp_path, tmp_path / "kept", "x", files, watch) == first
    assert asked == [files, files[1:], files]


def test_a_seed_draws_the_same_changes_where_others_come_and_go() -> None:
    changes = changes_of("x.py", SOURCE)
    first = drawn(changes, 1, 4)
    assert first == drawn(reversed(changes), 1, 4) != drawn(changes, 2, 4)
    moved = changes_of("x.py", "calls = [1]\n" + SOURCE)
    texts = [(one.text, one.new) for one in drawn(moved, 1, len(moved)) if one.line > 1]
    assert texts[:4] == [(one.text, one.new) for one in first]


def test_entries_of_changes_without_effect_are_still_of_the_program() -> None:
    assert stale(ROOT, read_known()) == []
    assert all(len(entry.why) > 10 for entry in read_known())


def test_a_known_change_is_known_wherever_its_line_is() -> None:
    first, *others = changes_of("x.py", SOURCE)
    known = Known("x.py", "LIMIT: Final[int] = 416", "416", "417", "the reason")
    assert known.is_like(first)
    assert not any(known.is_like(one) for one in others)
    assert any(known.is_like(one) for one in changes_of("x.py", "\n\n" + SOURCE))
    assert stale(ROOT, [known]) == [known]


def test_the_report_counts_by_package() -> None:
    places = ("core/a.py", "core/b.py", "core/c.py", "api/d.py")
    changes = [Change(f"supervisor/{place}", 1, 0, 1, "a", "b", "a") for place in places]
    verdicts: list[Verdict] = ["noticed", "survived", "without effect", "timed out"]
    lines = table(Outcome(change, verdict, "") for change, verdict in zip(changes, verdicts, strict=True))
    assert [line.split() for line in lines[1:]] == [
        ["api", "1", "0", "1", "0", "0", "100%", "noticed"],
        ["core", "2", "1", "0", "1", "1", "50%", "noticed"],
        ["all", "3", "1", "1", "1", "1", "67%", "noticed"],
    ]


def test_a_change_is_noticed_in_a_copy(tmp_path: Path) -> None:
    """The whole way, by tests that run the line, and not by others."""
    box = Sandbox(ROOT, tmp_path)
    path = "supervisor/core/stream/sse.py"
    source = (ROOT / path).read_text("utf-8")
    change = next(one for one in changes_of(path, source) if one.new == "return None")
    said: list[str] = []
    sampler = Sampler([box], said.append, random.Random(0))
    tests = {"tests/core/gguf/test_ggml.py", "tests/core/test_sse.py"}
    [outcome] = sampler.outcomes([change], Map({path: {change.line: tests}}, dict.fromkeys(tests, 1.0)))
    assert outcome.verdict == "noticed"
    assert outcome.by.startswith("tests/core/test_sse.py::")
    assert said == [f"  1/1 {outcome}"]
    [outcome] = sampler.outcomes([change], Map({path: {change.line: {"tests/core/gguf/test_ggml.py"}}}, {}))
    assert outcome.verdict == "survived"
    assert (tmp_path / path).read_text("utf-8") == source
    assert (ROOT / path).read_text("utf-8") == source


def test_a_change_that_never_ends_is_stopped(tmp_path: Path) -> None:
    """By a limit on CPU, which a busy machine does not use up."""
    box = Sandbox(ROOT, tmp_path)
    path = "supervisor/core/text/units.py"
    source = (ROOT / path).read_text("utf-8")
    endless = Change(path, 1, len(source), len(source), "", "while True:\n    pass\n", "")
    assert box.tried(endless, ["tests/core/gguf/test_ggml.py"], 4) == ("survived", "")
    importer = "tests/core/test_units_imported.py"
    (tmp_path / importer).write_text("def test_it() -> None:\n    import supervisor.core.text.units\n", "utf-8")
    assert box.tried(endless, [importer], 4) == ("timed out", "")
    assert (tmp_path / path).read_text("utf-8") == source
