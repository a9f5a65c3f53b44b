"""llama-server's command line becomes the settings of a daemon, and two runs of the tests are compared."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.suite.compare import Figures, difference, differences, figures
from tests.suite.known import reason_of
from tests.suite.plugin import NOTE, Noted, Seen
from tests.suite.report import made
from tests.suite.runner import Result
from tests.suite.shim import configuration

PLACE = ["--host", "127.0.0.1", "--port", "9"]
WHOLE = Result("a.py::test_x", "passed", frozenset(), None, ({"content": "Hi", "id": 1},), 1.0)
REAL = replace(WHOLE, test="a.py::test_y", failed=frozenset({"a.py:3"}))
SKIPPED = replace(WHOLE, test="b.py::test_z", outcome="skipped")


def test_a_model_and_its_options_become_a_configuration(tmp_path: Path) -> None:
    made = configuration(
        [*PLACE, "--model", "/m.gguf", "--alias", "b,a", "--ctx-size", "512", "--api-key", "k"], tmp_path
    )
    assert made["server"] == {"host": "127.0.0.1", "port": 9, "listen": [], "api_keys": ["k"]}
    assert made["models"] == {
        "a": {"file": "/m.gguf", "ctx_size": 512, "threads": 1, "preload": True, "aliases": ["b"]}
    }


def test_a_file_of_the_hub_is_found_in_the_cache(tmp_path: Path) -> None:
    file = tmp_path / "models--o--r" / "snapshots" / "c" / "x" / "m.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    made = configuration([*PLACE, "--hf-repo", "o/r", "--hf-file", "x/m.gguf"], tmp_path)
    assert made["models"][str(file)]["file"] == str(file)
    assert configuration([*PLACE, "--hf-repo", "o/r:F16"], tmp_path)["models"]["o/r:F16"]["source"] == "o/r:F16"


def test_without_a_model_the_options_are_those_of_all(tmp_path: Path) -> None:
    file = tmp_path / "models--o--r" / "snapshots" / "c" / "x-F32.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    preset = tmp_path / "preset.ini"
    preset.write_text("[mine]\nmodel = /m.gguf\n")
    arguments = [*PLACE, "--models-dir", "/models", "--models-preset", str(preset), "--ctx-size", "512"]
    made = configuration(arguments, tmp_path)
    assert (made["models_dir"], made["defaults"]) == ("/models", {"threads": 1, "ctx_size": 512})
    assert made["models"] == {"o/r:F32": {"source": "o/r:F32"}, "mine": {"file": "/m.gguf"}}


def test_a_failed_assertion_is_noted_and_the_test_goes_on() -> None:
    seen = Seen()
    tree = ast.fix_missing_locations(Noted().visit(ast.parse("assert 1 > 2, 'why'\nassert True\nreached = True")))
    space: dict[str, object] = {NOTE: seen.note}
    exec(compile(tree, "/x/test_a.py", "exec"), space)
    assert seen.failed == {"test_a.py:1"}
    assert space["reached"] is True


@pytest.mark.parametrize(
    ("through", "what"),
    [
        (replace(WHOLE, said=({"content": "Ho"},)), None),
        (replace(WHOLE, failed=frozenset({"a.py:7"})), "fails at a.py:7"),
        (replace(WHOLE, outcome="failed", raised="KeyError: 'x'"), "ends otherwise: KeyError: 'x'"),
        (replace(WHOLE, outcome="skipped"), "ends otherwise: None"),
    ],
)
def test_what_holds_directly_holds_through_us(through: Result, what: str | None) -> None:
    assert difference(WHOLE, through) == what


@pytest.mark.parametrize(
    ("through", "what"),
    [
        (replace(REAL, said=({"content": "Hi", "id": 2},)), None),
        (replace(REAL, said=({"status": "ok"}, {"content": "Hi"})), None),
        (replace(REAL, said=({"content": "Ho"},)), 'gets another answer: {"content": "Ho"}'),
        (replace(REAL, failed=REAL.failed | {"a.py:9"}), "fails at a.py:9"),
    ],
)
def test_what_needs_the_real_model_gets_the_same_answers(through: Result, what: str | None) -> None:
    assert difference(REAL, through) == what


def test_what_is_skipped_directly_does_not_count() -> None:
    assert difference(SKIPPED, replace(SKIPPED, outcome="failed")) is None
    direct = {one.test: one for one in (WHOLE, REAL, SKIPPED)}
    through = {WHOLE.test: replace(WHOLE, failed=frozenset({"a.py:7"})), REAL.test: REAL, SKIPPED.test: SKIPPED}
    assert figures(direct, through) == {"a": Figures(tests=2, hold=1, hold_through=0, real=1, alike=1)}


def test_a_test_that_did_not_run_through_us_differs() -> None:
    assert differences({WHOLE.test: WHOLE}, {}) == {WHOLE.test: "did not run"}
    assert "| Not explained. | `a: x` |" in made({WHOLE.test: WHOLE}, {})


def test_reasons_are_for_patterns_of_names() -> None:
    known = {"Because.": ("a.py::test_x*",), "Therefore.": ("b.py::*",)}
    assert reason_of("a.py::test_x[1-*]", known) == "Because."
    assert reason_of("b.py::test_x", known) == "Therefore."
    assert reason_of("c.py::test_x", known) is None


def test_of_many_tests_with_one_reason_the_files_are_named() -> None:
    direct = {name: replace(WHOLE, test=name) for name in (f"a.py::test_{number}" for number in range(9))}
    assert "| Not explained. | `a` (9) |" in made(direct, {})


def test_several_addresses_are_further_ones(tmp_path: Path) -> None:
    made = configuration(["--host", "127.0.0.1,::1,localhost", "--port", "9", "--model", "/m.gguf"], tmp_path)
    assert made["server"] == {"host": "127.0.0.1", "port": 9, "listen": ["[::1]:9", "localhost:9"]}
