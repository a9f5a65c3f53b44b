"""The pages say what the program does: README commands are run, error tables are compared with the code."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from supervisor.core.engine_output.failures import CODES, MEANINGS
from tests.support.daemon import environment, scratch_home
from tests.support.error_table import error_classes, table
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]


def shell_blocks(page: str) -> list[list[str]]:
    """The commands of every ```sh block, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return [[shlex.join(shlex.split(line, comments=True)) for line in block.splitlines() if line] for block in blocks]


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
                    shlex.split(command),
                    cwd=ROOT,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                said[command] = done.stdout
        finally:
            subprocess.run(
                [ROOT / "bin/supervisor", "stop"], env=env, check=False, capture_output=True, timeout=PATIENCE
            )
    assert "get_weather" in said["bin/supervisor demo"]
    assert "demo" in said["bin/supervisor ps"]
    assert "built-in model" in said["bin/supervisor chat demo -m 'Who are you?'"]


@pytest.mark.parametrize("page", DOCS, ids=lambda path: path.name)
def test_every_page_is_reached_from_the_readme_or_another_page(page: Path) -> None:
    assert any(page.name in other.read_text(encoding="utf-8") for other in PAGES if other != page)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                there = page.parent / target if target else page
                assert there.exists(), f"{page.name} links to {target}"
                assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_files_of_the_program_that_pages_name_are_there() -> None:
    """A page that says where something is, or which test shows it, names a file."""
    for page in PAGES:
        for name in re.findall(r"`((?:tests|supervisor|benchmarks|bin)/[\w/.-]+)`", page.read_text(encoding="utf-8")):
            assert "NAME" in name or name.endswith(".cpp") or (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_cause_has_a_meaning() -> None:
    assert MEANINGS.keys() == CODES.keys()


def test_the_page_has_every_code_that_a_failure_is_given() -> None:
    codes = set(re.findall(r"^\| `(\w+)` \|", table(), re.MULTILINE))
    used = {
        node.args[0].value
        for path in (ROOT / "supervisor").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Failure"
        if isinstance(node.args[0], ast.Constant)
    }
    assert len(used) > 5
    assert used - codes == {"engine_outgrown"}, "which is for the log alone"


def test_codes_are_unique() -> None:
    kinds = list(error_classes())
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_ci_calls_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert script.rstrip().endswith('exec bin/test "$@"')
    assert os.access(ROOT / "bin" / "test", os.X_OK)
