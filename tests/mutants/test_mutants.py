"""The sampler of changes: what it changes, whom it asks, and its list of changes without effect."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.mutants.__main__ import Sampler, beside, drawn, files_of
from tests.mutants.changes import Change, changes_of
from tests.mutants.known import Known, read_known, stale
from tests.mutants.maps import Map, Memory, Runs
from tests.mutants.order import MOST, Rounds, nearest_first, rounds
from tests.mutants.report import Outcome, Verdict, table
from tests.mutants.running import Runner, Stopped
from tests.mutants.sandbox import Sandbox
from tests.support.daemon import wait_until

ROOT = Path(__file__).parents[2]
WATCHED = """
import subprocess
import sys

LEFT = []


def started(module, then):
    code = f"import supervisor.core.{module}; {then}"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_child():
    started("text.nearest", "").communicate()


def test_here():
    from supervisor.core.text.units import seconds
    seconds("1s")


def test_wrong():
    raise AssertionError


def test_leaves_a_child():
    LEFT.append(started("requests.browsers", "print(flush=True); input()"))
    LEFT[0].stdout.readline()


def test_ends_it():
    LEFT[0].communicate(b"now")
"""
X = "supervisor/x.py"
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


def test_a_statement_of_several_lines() -> None:
    source = "A = (\n    1,\n    2,\n)\nif (A and\n        not x):\n    y(3)\nmatch A:\n    case 4:\n        pass\n"
    spans = {change.old: change.statement for change in changes_of(X, source)}
    assert (spans["1"], spans["2"], spans["not x"], spans["3"], spans["4"]) == ((1, 4), (1, 4), (5, 6), (7, 7), (9, 9))
    second = next(change for change in changes_of(X, source) if change.old == "2")
    assert second.lines == bits(1, 2, 3, 4)
    assert Map({X: {"a": bits(1), "": bits(1)}}).is_run(second)
    assert Map({X: {"a": bits(1), "b": bits(3), "c": bits(5)}}).runners(second) == ["b"]
    assert Map({X: {"a": bits(1), "c": bits(5)}}).runners(second) == ["a"]


def bits(*lines: int) -> int:
    return sum(1 << line for line in lines)


def test_who_runs_a_line_or_else_its_file() -> None:
    change = changes_of(X, SOURCE)[0]
    assert change.line == 2
    runs = {X: {"": bits(2), "a::one": bits(7, 8), "b::two": bits(8)}}
    assert Map(runs).is_run(change)
    assert Map(runs).runners(change) == ["a::one", "b::two"]
    assert Map({X: {**runs[X], "c": bits(2, 3)}}).runners(change) == ["c"]
    only_imported = Map({X: {"": bits(2)}}, {"tests/test_a.py::a": 1.0})
    assert only_imported.runners(change) == ["tests/test_a.py::a"]
    own = Map({X: {"": bits(2), "a": bits(7)}}, {"tests/test_a.py::a": 1.0, "tests/shell/test_x.py::b": 1.0})
    assert own.runners(change) == ["a", "tests/shell/test_x.py::b"]
    assert not Map({X: {"a": bits(1, 3)}}).is_run(change)


def of_module(path: str) -> Change:
    return Change(path, 1, 0, 1, "a", "b", "a")


def test_near_tests_come_first_and_heavy_files_last() -> None:
    seconds = {
        "tests/core/plan/test_sizes.py::one": 3.0,
        "tests/core/plan/test_cover.py::two": 2.0,
        "tests/core/plan/test_cover.py::three": 0.5,
        "tests/core/test_spec.py::four": 0.1,
        "tests/core/plan/test_properties.py::five": 40.0,
    }
    change = of_module("supervisor/core/plan/sizes.py")
    numbers = ["one", "three", "two", "four", "five"]
    assert [test.partition("::")[2] for test in nearest_first(change, sorted(seconds), seconds)] == numbers
    shell = ["tests/api/test_pool.py::a", "tests/shell/test_child.py::b", "tests/shell/test_pool_life.py::c"]
    assert nearest_first(of_module("supervisor/pool/pool.py"), shell, {})[0] == shell[2]


def test_a_few_cases_then_all_then_what_is_left() -> None:
    seconds = {f"tests/test_a.py::one[{number}]": 1.0 for number in range(200)} | {"tests/test_a.py::two": 1.0}
    plan = rounds(of_module("supervisor/x.py"), sorted(seconds), seconds, random.Random(0))
    first, second = plan.tests
    assert len(first) == 5
    assert "tests/test_a.py::two" in first
    assert not set(first) & set(second)
    assert sum(seconds[test] for test in (*first, *second)) == MOST
    assert plan.left == len(seconds) - MOST
    long = {"tests/test_a.py::long": MOST + 1}
    assert rounds(of_module("supervisor/x.py"), sorted(long), long, random.Random(0)) == Rounds([sorted(long)], 0)


def test_whose_tests_notice() -> None:
    found = files_of("core/toolcalls")
    assert {"tests/core/toolcalls/test_corpus.py", "tests/core/recovery/test_stream.py"} <= set(found)
    assert "tests/store/test_database.py" not in found
    assert beside("core/toolcalls/automaton") == beside("core/toolcalls")
    assert beside("core/stream/sse") == ["tests/core/test_sse.py"]
    assert "tests/shell/test_pool_life.py" in beside("pool")
    everything = files_of(".")
    assert set(found) < set(everything)
    assert all((ROOT / one).is_file() and "mutants" not in one for one in everything)


def test_what_was_seen_is_kept_until_a_module_that_runs_or_the_test_changes(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def watch(files: Sequence[str]) -> tuple[Runs, dict[str, float]]:
        asked.append(list(files))
        tests = {f"{file}::test": bits(1) for file in files}
        runs = {"supervisor/x.py": {"": bits(2), **tests}} if files[0].endswith("a.py") else {}
        runs["supervisor/z.py"] = {"": bits(1)}
        return runs, dict.fromkeys(tests, 0.5)

    for name in ("supervisor/x.py", "tests/test_a.py", "tests/test_b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n", "utf-8")
    files = ["tests/test_a.py", "tests/test_b.py"]

    def mapped() -> Map:
        return Memory(tmp_path, tmp_path / "kept").mapped(files, watch)

    first = mapped()
    assert first.runs == {
        "supervisor/x.py": {"": bits(2), "tests/test_a.py::test": bits(1), "tests/test_b.py::test": bits(1)},
        "supervisor/z.py": {"": bits(1)},
    }
    assert mapped() == first
    (tmp_path / files[1]).write_text("2\n", "utf-8")
    mapped()
    (tmp_path / "supervisor/x.py").write_text("2\n", "utf-8")
    mapped()
    (tmp_path / "supervisor/z.py").write_text("2\n", "utf-8")
    mapped()
    assert asked == [files, files[1:], files[:1]]


def test_who_runs_what_in_processes_of_their_own_too(tmp_path: Path) -> None:
    box = Sandbox(ROOT, tmp_path)
    (tmp_path / "tests" / "test_watched.py").write_text(WATCHED, "utf-8")
    runs, seconds, failed = box.watch(["tests/test_watched.py"], "not full")
    name = "tests/test_watched.py::test_{}"
    units, paths = runs["supervisor/core/text/units.py"], runs["supervisor/core/text/nearest.py"]
    assert failed == [name.format("wrong")]
    assert seconds.keys() == {name.format(one) for one in ("child", "here", "leaves_a_child", "ends_it")}
    assert units.keys() - {""} == {name.format("here")}
    assert paths.keys() - {""} == {name.format("child")}
    lasting = runs["supervisor/core/requests/browsers.py"]
    assert lasting.keys() - {""} == seconds.keys()
    assert (tmp_path / "supervisor/__init__.py").read_text("utf-8") == (ROOT / "supervisor/__init__.py").read_text(
        "utf-8"
    )


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
    places = ("core/a.py", "core/b.py", "core/c.py", "api/d.py", "core/e.py")
    changes = [Change(f"supervisor/{place}", 1, 0, 1, "a", "b", "a") for place in places]
    verdicts: list[Verdict] = ["noticed", "survived", "without effect", "timed out", "cut off"]
    lines = table(Outcome(change, verdict, "") for change, verdict in zip(changes, verdicts, strict=True))
    assert [line.split() for line in lines[1:]] == [
        ["api", "1", "0", "1", "0", "0", "0", "100%", "noticed"],
        ["core", "3", "1", "0", "1", "1", "1", "33%", "noticed"],
        ["all", "4", "1", "1", "1", "1", "1", "50%", "noticed"],
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
    [outcome] = sampler.outcomes(
        [change], Map({path: dict.fromkeys(tests, bits(change.line))}, dict.fromkeys(tests, 1.0))
    )
    assert outcome.verdict == "noticed"
    assert outcome.by.startswith("tests/core/test_sse.py::")
    assert said == [f"  1/1 {outcome}"]
    [outcome] = sampler.outcomes([change], Map({path: {"tests/core/gguf/test_ggml.py": bits(change.line)}}, {}))
    assert outcome.verdict == "survived"
    assert (tmp_path / path).read_text("utf-8") == source
    assert (ROOT / path).read_text("utf-8") == source


def test_a_module_that_cannot_be_imported_any_more_is_noticed(tmp_path: Path) -> None:
    box = Sandbox(ROOT, tmp_path)
    path = "supervisor/core/stream/sse.py"
    end = len((ROOT / path).read_text("utf-8"))
    broken = Change(path, 1, end, end, "", "raise ImportError\n", "")
    tests = ["tests/core/test_sse.py::test_streams_whole_and_byte_by_byte"]
    for named in (tests, ["tests/core/test_sse.py"]):
        assert box.tried(broken, named, 60)[0] == "noticed"


def test_a_change_that_never_ends_is_stopped(tmp_path: Path) -> None:
    """By a limit on CPU, which a busy machine does not use up."""
    box = Sandbox(ROOT, tmp_path)
    path = "supervisor/core/text/units.py"
    source = (ROOT / path).read_text("utf-8")
    endless = Change(path, 1, len(source), len(source), "", "while True:\n    pass\n", "")
    assert box.tried(endless, ["tests/core/gguf/test_ggml.py"], 600) == ("survived", "")
    importer = "tests/core/test_units_imported.py"
    (tmp_path / importer).write_text("def test_it() -> None:\n    import supervisor.core.text.units\n", "utf-8")
    assert box.tried(endless, [importer], 4) == ("timed out", "")
    assert (tmp_path / path).read_text("utf-8") == source


def words_of(process: psutil.Process) -> list[str]:
    """The words of its command; none where it has just ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one, too
        return []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Neither a copy nor a process."""
    argv = [sys.executable, "-P", "-m", "tests.mutants", "3", "--package", "core/stream/sse"]
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as sampler:
        me = psutil.Process(sampler.pid)

        def testing() -> list[psutil.Process]:
            assert sampler.poll() is None, sampler.communicate()
            return [one for one in me.children() if "pytest" in words_of(one)]

        wait_until(lambda: bool(testing()), "tests run")
        started = testing()
        assert any(tmp_path.iterdir())
        sampler.send_signal(number)
        sampler.communicate()
    assert sampler.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []
    assert not any(one.is_running() for one in started)


def test_what_has_to_end_ends_with_what_it_started(tmp_path: Path) -> None:
    """A process that holds on to nothing of its parent's, and one that ends only when it is killed."""
    stubborn = (
        "import signal\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()\n"
    )
    script = (
        "import subprocess, sys\n"
        f"argv = [sys.executable, '-c', {stubborn!r}]\n"
        "child = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        f"open({str(tmp_path / 'pid')!r}, 'x').write(f'{{child.pid}} ')\n"
        "child.wait()\n"
    )
    runner = Runner()
    said: list[BaseException] = []

    def run() -> None:
        try:
            runner.run([sys.executable, "-c", script], tmp_path, os.environ, 600, tmp_path / "said")
        except Stopped as stopped:
            said.append(stopped)

    thread = threading.Thread(target=run)
    thread.start()
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().endswith(" "), "the child's number")
    child = psutil.Process(int(pid.read_text()))
    runner.stop()
    thread.join()
    assert not child.is_running()
    assert [type(one) for one in said] == [Stopped]
    with pytest.raises(Stopped):
        runner.run(["true"], tmp_path, os.environ, 1, tmp_path / "said")
