"""A plugin of pytest for llama.cpp's server tests: records what a test saw, and goes on after a failed assertion.

The tests compare texts with those of real models, which the stand-ins do not write. A failed assertion is therefore
noted, not raised: what comes after it is tried all the same, and two runs can be compared line by line.
"""

from __future__ import annotations

import ast
import importlib.machinery
import io
import json
import os
import shutil
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

SOURCE, RESULT, CACHE, PICTURE = "SUITE_SOURCE", "SUITE_RESULT", "LLAMA_CACHE", "SUITE_PICTURE"
"""Variables: the tests' folder, the file for the results, the folder of the models, a picture."""

NOTE, SAY = "__suite_note__", "print"
_ELSEWHERE = ("-IMG_URL_", "https:", "test_vision_chat_completion_token_count", "test_systemone_images")
_ANSWERS = ("Response from server", "Partial response from server")


class Seen:
    """What the test at work has seen."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.said: list[Any] = []

    def note(self, error: AssertionError) -> None:
        """Take down where an assertion failed."""
        trace = error.__traceback__
        assert trace is not None
        self.failed.add(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")

    def say(self, *words: object, **_: object) -> None:
        """Take down an answer that the tests' helpers print."""
        if len(words) > 1 and words[0] in _ANSWERS:
            self.said.append(json.loads(str(words[1])))


SEEN = Seen()


class Noted(ast.NodeTransformer):
    """`assert x` becomes `try: assert x`, and what it raises is noted."""

    def visit_Assert(self, node: ast.Assert) -> ast.Try:
        note = ast.Expr(ast.Call(ast.Name(NOTE, ast.Load()), [ast.Name("__error", ast.Load())], []))
        handler = ast.ExceptHandler(ast.Name("AssertionError", ast.Load()), "__error", [note])
        return ast.copy_location(ast.Try([node], [handler], [], []), node)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module of the tests with its assertions noted."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        tree = ast.fix_missing_locations(Noted().visit(ast.parse(self.get_data(path), path)))
        code: types.CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update({NOTE: SEEN.note, SAY: SEEN.say})
        super().exec_module(module)


def _hook(path: str) -> importlib.machinery.FileFinder:
    if not Path(path).is_relative_to(os.environ[SOURCE]):
        raise ImportError(path)
    return importlib.machinery.FileFinder(path, (_Loader, [".py"]))


def _fetched(url: str, out: str | None = None) -> str:
    """What the tests download is there already."""
    target = Path(out or Path(url).name)
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(Path(os.environ[CACHE]) / Path(url).name, target)
    return str(target)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before any module of the tests is imported."""
    sys.path_hooks.insert(0, _hook)
    sys.path_importer_cache.clear()
    fetcher = types.ModuleType("wget")
    vars(fetcher)["download"] = _fetched
    sys.modules["wget"] = fetcher


@pytest.fixture(scope="session", autouse=True)
def nothing_from_elsewhere() -> Iterator[None]:
    """Pictures that the tests fetch are one of ours, and no model is loaded only to be in the cache."""
    ask = requests.get

    def get(url: str, **more: Any) -> requests.Response:
        if not url.startswith("https:"):
            return ask(url, **more)
        answer = requests.Response()
        answer.status_code, answer.raw = 200, io.BytesIO(Path(os.environ[PICTURE]).read_bytes())
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("requests.get", get)
        yield


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """The presets are there, so nothing has to be fetched before the first test. No server asks one elsewhere."""
    for item in items:
        if any(name in item.nodeid for name in _ELSEWHERE):
            item.add_marker(pytest.mark.skip("the server would fetch something from elsewhere"))
    presets = sys.modules["utils"].ServerPreset
    presets.load_all = staticmethod(lambda: None)


def pytest_runtest_setup() -> None:
    SEEN.failed, SEEN.said = set(), []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a line for each test: at its call, or where its set-up fails or skips it."""
    if report.when != "call" and report.passed:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    result = {
        "test": report.nodeid.removeprefix("unit/test_"),
        "when": report.when,
        "outcome": report.outcome,
        "failed": sorted(SEEN.failed),
        "raised": None if crash is None else str(crash.message).splitlines()[0][:200],
        "seconds": round(report.duration, 2),
        "said": SEEN.said,
    }
    with Path(os.environ[RESULT]).open("a") as file:
        file.write(json.dumps(result) + "\n")
