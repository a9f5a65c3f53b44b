"""The pages say what the program does: README commands are run, error tables are compared with the code."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from supervisor import errors
from supervisor.api.errors import STATUSES
from supervisor.core.failures import CODES
from tests.support.daemon import environment, scratch_home

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def shell_blocks(page: str) -> list[list[str]]:
    """The commands of every ```sh block, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return [[shlex.join(shlex.split(line, comments=True)) for line in block.splitlines() if line] for block in blocks]


Kind: TypeAlias = type[errors.SupervisorError]


def error_classes(kind: Kind = errors.SupervisorError) -> Iterator[Kind]:
    if kind is not errors.RemoteError:  # carries the code of another
        yield kind
        for child in kind.__subclasses__():
            yield from error_classes(child)


def test_the_readme_begins_with_the_two_commands() -> None:
    assert shell_blocks(README)[0] == ["bin/supervisor demo", "bin/test"]


@pytest.mark.engine
def test_the_commands_of_the_readme_work(engine_binary: Path) -> None:
    """As typed, from the checkout, in one go, with a daemon of their own. (bin/test is what runs this.)"""
    start, use, _install = shell_blocks(README)
    with scratch_home() as home:
        (home / "any-port.yaml").write_text("server: {port: 0}\n")
        env = environment(home, engine_binary, SUPERVISOR_CONFIG=str(home / "any-port.yaml"))
        del env["PYTHONPATH"]
        said: dict[str, str] = {}
        try:
            for command in [start[0], *use]:
                done = subprocess.run(
                    shlex.split(command), cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                said[command] = done.stdout
        finally:
            subprocess.run([ROOT / "bin/supervisor", "stop"], env=env, check=False, capture_output=True, timeout=60)
    assert "get_weather" in said["bin/supervisor demo"]
    assert "demo" in said["bin/supervisor ps"]
    assert "built-in model" in said["bin/supervisor chat demo -m 'Who are you?'"]


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_every_page_is_reached_from_the_readme_or_another_page(page: str) -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert any(page in other.read_text(encoding="utf-8") for other in pages if other.name != page)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_errors_has_every_code_and_status() -> None:
    page = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE))
    real = {kind.code: str(next(STATUSES[k] for k in kind.__mro__ if k in STATUSES)) for kind in error_classes()}
    assert shown == real | {code: str(STATUSES[errors.ModelLoadFailed]) for code in CODES}


def test_codes_are_unique_and_drawn_in_the_tree() -> None:
    kinds = list(error_classes())
    assert len({kind.code for kind in kinds}) == len(kinds)
    tree = errors.__doc__ or ""
    for kind in kinds:
        assert re.search(rf"\b{kind.__name__}\b", tree), kind.__name__


def test_ci_calls_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert script.rstrip().endswith('exec bin/test "$@"')
    assert os.access(ROOT / "bin" / "test", os.X_OK)
