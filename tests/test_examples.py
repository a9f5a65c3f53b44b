"""Every example of the pages is tried again: the calls in docs/rest.md, all YAML, all Python, all command lines.

The plan in README.md is one of the parts that are made (`test_pages`); its commands are run by `test_docs`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.main import build_parser, main
from supervisor.cli.registry import VERBS
from supervisor.config import Settings, load_settings
from supervisor.config.settings import ModelOptions, ModelSettings
from supervisor.core.routes import SERVED
from supervisor.demo.builtin import ensure_demo_model
from supervisor.probe.profiles import load_profile
from tests.support import rest_examples
from tests.support.doc_blocks import ROOT, blocks
from tests.support.routes import served_routes

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REST = rest_examples.PAGE.read_text(encoding="utf-8")
TOOLCALLS = (ROOT / "docs" / "toolcalls.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def yaml_blocks(kind: str) -> list[Any]:
    """The ```yaml blocks of all pages; `kind` is what follows the word."""
    found = []
    for page in PAGES:
        for number, text in enumerate(re.findall(rf"```yaml{kind}\n(.*?)```", page.read_text("utf-8"), re.DOTALL), 1):
            found.append(pytest.param(text, id=f"{page.name}-{number}"))
    return found


@pytest.fixture(scope="module")
def answered(engine_binary: Path) -> dict[str, rest_examples.Example]:
    """Every example, asked again."""
    return rest_examples.examples(engine_binary)


@pytest.mark.engine
def test_the_examples_of_the_rest_page_have_the_shape_of_real_answers(
    answered: dict[str, rest_examples.Example],
) -> None:
    shown = blocks(rest_examples.PAGE)
    assert shown.keys() == answered.keys()
    for name, example in answered.items():
        assert rest_examples.shape_of(shown[name]) == rest_examples.shape_of(example.shown()), (
            f"{name}: .venv/bin/python -m tests.support.rest_examples writes it anew"
        )


@pytest.mark.engine
@pytest.mark.parametrize("name", ["load", "plan", "refusal", "devices", "requests", "disk", "status", "reload"])
def test_every_field_of_an_answer_is_explained(answered: dict[str, rest_examples.Example], name: str) -> None:
    words = re.sub(r"<!-- made.*?<!-- end -->", "", REST, flags=re.DOTALL)
    answer = answered[name].answer
    inner = next((item for item in answer.values() if isinstance(item, list) and item), None)
    told = {*answer, *(inner[0] if name in {"requests", "disk"} and inner else ())}
    assert [key for key in sorted(told) if f"`{key}`" not in words and f".{key}`" not in words] == []


def test_every_call_is_on_the_rest_page() -> None:
    known = {route.path for route in served_routes() if route.include_in_schema} | SERVED.keys()
    assert len(known) > 30
    parameter = re.compile(r"\{[a-z_]+(:path)?\}")
    plain = parameter.sub("{}", REST)
    missing = [path for path in sorted(known) if parameter.sub("{}", path) not in plain]
    assert not missing, f"docs/rest.md does not name {missing}"


@pytest.mark.parametrize("text", yaml_blocks(""))
def test_a_configuration_of_a_page_passes_the_check(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "supervisor.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["config", "check", str(path)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("text", yaml_blocks(" profile"))
def test_a_profile_of_a_page_is_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_profile(str(path)).devices


def command_lines() -> list[str]:
    """What follows the program's name in every ```sh and ```console block."""
    texts = [page.read_text("utf-8") for page in PAGES]
    blocks = [block for text in texts for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)]
    lines = re.findall(r"^(?:\$ )?(?:bin/)?supervisor (.*)$", "\n".join(blocks), re.MULTILINE)
    return sorted({shlex.join(shlex.split(line, comments=True)) for line in lines})


@pytest.mark.parametrize("line", command_lines())
def test_the_command_lines_of_the_pages_are_understood(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)
    words = words[: next((at for at, word in enumerate(words) if word in {"|", ">", "<", "&&"}), len(words))]
    verb = VERBS.find(words[0])
    if words == ["--help"]:
        with pytest.raises(SystemExit) as left:
            build_parser(None).parse_args(words)
        assert left.value.code == 0
        return
    assert verb is not None
    _, unknown = build_parser(verb).parse_known_args([verb, *words[1:]])
    assert unknown == []


def python_blocks() -> list[Any]:
    """The ```python blocks of all pages."""
    found = [(page.name, text) for page in PAGES for text in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)]
    return [pytest.param(text, id=f"{name}-{number}") for number, (name, text) in enumerate(found)]


@pytest.mark.parametrize("text", python_blocks())
def test_the_python_of_the_pages_runs(text: str, tmp_path: Path) -> None:
    """What asks a daemon, or is a row of a table that is not there, is compiled at least."""
    code = compile(text, "page", "exec", dont_inherit=True) if not text.startswith("    ") else None
    if code is None or "openai" in text:  # langchain_openai, too
        return
    ensure_demo_model(tmp_path).rename(tmp_path / "model.gguf")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_call_at_the_head_of_the_page_becomes_a_call(tmp_path: Path) -> None:
    shown = re.search(r"```text\n(.*?)```", TOOLCALLS, re.DOTALL)
    assert shown
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "get_weather"}}]))
    command = [sys.executable, "-P", "-m", "supervisor", "toolcalls", "parse", "--json", "--tools", str(tools)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=shown[1], env=env, capture_output=True, text=True, check=True)
    [call] = json.loads(done.stdout)["tool_calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city": "Paris"}')


def test_every_counter_of_tool_calls_is_explained() -> None:
    told = blocks(rest_examples.PAGE)["toolcalls"]
    counters = json.loads(re.findall(r"```json\n(.*?)```", told, re.DOTALL)[0])["models"]["demo"]
    assert [name for name in counters if f"`{name}`" not in TOOLCALLS] == []


def section_rows(section: str) -> dict[str, str]:
    """Key and default of the table below the heading of a section of docs/configuration.md."""
    found = re.search(rf"^## `{section}`\n.*?(?=^## |\Z)", CONFIGURATION, re.DOTALL | re.MULTILINE)
    assert found, f"no heading `{section}`"
    return dict(re.findall(r"^\| `(\w+)` \| `([^|]*)` \|", found[0], re.MULTILINE))


@pytest.mark.parametrize("section", ["server", "engine", "hub", "devices", "context", "placement", "queue"])
def test_every_key_of_a_section_is_shown_with_its_default(section: str, tmp_path: Path) -> None:
    rows = section_rows(section)
    assert rows.keys() == type(getattr(Settings(), section)).model_fields.keys()
    path = tmp_path / "supervisor.yaml"
    path.write_text("\n".join([f"{section}:", *(f"  {key}: {value}" for key, value in rows.items())]))
    assert getattr(load_settings(path, {}), section) == getattr(Settings(), section)


def test_every_key_of_a_model_that_is_no_launch_option_is_shown() -> None:
    own = ModelSettings.model_fields.keys() - ModelOptions.model_fields.keys()
    assert [key for key in sorted(own) if f"`{key}`" not in CONFIGURATION] == []


def test_every_key_of_the_file_is_named() -> None:
    assert [key for key in Settings.model_fields if f"`{key}" not in CONFIGURATION] == []
