"""bin/test: what it runs, in which order, and what its exit status says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bootstrap.conftest import Checkout, Result

# Stands for ruff, mypy and pytest in the small checkout: says how it was called, fails when told to.
TOOL = """
import os, sys
name = os.path.basename(__file__).removesuffix(".py")
print(name, *sys.argv[1:], sep="|", flush=True)
sys.exit(name in os.environ.get("FAILING", "").split())
"""


@pytest.fixture
def tested(uv_checkout: Checkout) -> Checkout:
    for tool in ("ruff", "mypy", "pytest"):
        (uv_checkout.root / f"{tool}.py").write_text(TOOL)
    support = uv_checkout.root / "tests" / "support"
    support.mkdir(parents=True)
    (support / "vulkan.py").write_text(TOOL)
    (uv_checkout.root / "bin" / "vulkan-headers").write_text("#!/bin/sh\necho vulkan-headers\nexit 1\n")
    return uv_checkout


def run(checkout: Checkout, *args: str, failing: str = "") -> Result:
    return checkout.run(*args, command=checkout.root / "bin" / "test", cwd=Path("/"), FAILING=failing)


def test_it_runs_lint_types_and_tests_with_pytest_last(tested: Checkout) -> None:
    done = run(tested)
    pytest = "pytest|-n|auto|--dist|loadfile|-m"
    expected = ["ruff|check|.", "mypy", "mypy|bin/environment.py", f"{pytest}|not full"]
    assert (done.code, done.out.splitlines()) == (0, expected), done.err
    assert run(tested, "tests/core", "-k", "a or b").out.splitlines()[-1] == f"{pytest}|not full|tests/core|-k|a or b"
    assert run(tested, "--full", "-x").out.splitlines()[-1] == f"{pytest}||-x"


@pytest.mark.parametrize("failing", ["ruff", "mypy", "pytest", "ruff pytest"])
def test_one_failing_check_fails_it_and_the_others_still_run(tested: Checkout, failing: str) -> None:
    done = run(tested, failing=failing)
    assert done.code == 1
    assert [line.split("|")[0] for line in done.out.splitlines()] == ["ruff", "mypy", "mypy", "pytest"]


def test_an_engine_with_a_gpu_back_end_is_built_where_it_is_lacking(tested: Checkout) -> None:
    """With headers or without: what the build says of them is of more use."""
    build = "|engine|build|--backend|vulkan|--no-use|--wait"
    assert build not in run(tested).err
    done = run(tested, failing="vulkan")
    assert done.code == 0
    assert f"{tested.greeting()}{build}" in done.err
    assert "engine" not in done.out


def test_its_environment_serves_the_program_too(tested: Checkout) -> None:
    assert run(tested).code == 0
    assert tested.run() == Result(0, f"{tested.greeting()}\n", "")


def test_it_adds_to_the_programs_environment(tested: Checkout) -> None:
    assert tested.run().code == 0
    done = run(tested)
    assert done.code == 0
    assert "Making" not in done.err
    assert "requirements/dev.txt" in done.err
