"""A verb is one module: what a file in the folder brings about, and what the folder's records promise."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.main import main
from supervisor.cli.registry import VERBS, Registry, Verb, module_of
from tests.cli.conftest import ROOT, Cli
from tests.support.cli_page import page

_GREET = '''"""`greet NAME`."""

import argparse

from supervisor.cli.registry import Verb

VERB = Verb(
    summary="say hello",
    order=5,
    description="Say hello to somebody.",
    examples=(("greet Ada", "a greeting"),),
    aliases=("hello",),
    exits=((7, "greeted"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="who is greeted")
    parser.add_argument("--twice", action="store_true", help="say it again")


def run(args: argparse.Namespace) -> int:
    print(f"hello {args.name}")
    return 7
'''


@pytest.fixture
def scratch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Registry]:
    """A registry with one verb, `greet`, in a package of its own."""
    name = f"verbs_of_{abs(hash(request.node.name))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / name / "greet.py").write_text(_GREET)
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    yield Registry(name)
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize("word", ["greet", "hello"])
def test_a_module_in_the_folder_is_a_verb(scratch: Registry, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert main([word, "Ada"], scratch) == 7
    assert capsys.readouterr().out == "hello Ada\n"


@pytest.mark.parametrize("word", ["say-so", "say_so"])
def test_a_verb_of_two_words_is_a_module_with_an_underscore(
    scratch: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    (greet,) = tmp_path.glob("*/greet.py")
    greet.with_name("say_so.py").write_text(_GREET.replace('("hello",)', "()").replace("greet", "say-so"))
    importlib.invalidate_caches()
    assert list(scratch.records) == ["greet", "say-so"]
    assert main([word, "Ada"], scratch) == 7
    assert capsys.readouterr().out == "hello Ada\n"
    assert "verbs/say_so.py" in page(scratch, "## The verbs\n")


@pytest.mark.parametrize("word", ["--init--", "-greet", "greet-", "Greet", "__init__"])
def test_what_only_looks_like_a_module_is_no_verb(scratch: Registry, word: str) -> None:
    assert scratch.find(word) is None


def test_help_has_its_line_its_alias_and_its_examples(scratch: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"], scratch)
    shown = capsys.readouterr().out
    assert "    greet     say hello\n" in shown
    assert "Also understood: hello (greet)" in shown
    with pytest.raises(SystemExit):
        main(["help", "hello"], scratch)
    shown = capsys.readouterr().out
    assert "Say hello to somebody." in shown
    assert shown.endswith("examples:\n  supervisor greet Ada  # a greeting\nexit code 7: greeted\n")


@pytest.mark.parametrize(("typed", "meant"), [("gret", "greet"), ("hallo", "hello")])
def test_it_is_suggested_for_a_slip(
    scratch: Registry, capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    assert main([typed], scratch) == 2
    assert f"no verb '{typed}'; did you mean {meant}?" in capsys.readouterr().err


def test_it_gets_its_place_in_the_page(scratch: Registry) -> None:
    made = page(scratch, "# Mine\n\n## The verbs\n")
    assert made.startswith("# Mine\n\n## The verbs\n\n| verb | does |\n")
    assert "| [`greet NAME`](#greet) | say hello (also: `hello`) |\n" in made
    assert "supervisor greet Ada  # a greeting\n" in made
    assert "| `--twice` | say it again |\n" in made
    assert "\nExit code 7: greeted.\n" in made
    assert "verbs/greet.py" in made


def test_what_is_written_by_hand_is_kept(scratch: Registry) -> None:
    once = page(scratch, "## The verbs\n")
    text = once.replace("<!-- by hand -->\n", "<!-- by hand -->\n\nOf our own.\n")
    assert page(scratch, text).count("Of our own.") == 1


def test_the_records_that_are_cut_out_are_those_of_the_modules() -> None:
    assert {
        name: importlib.import_module(f"supervisor.cli.verbs.{module_of(name)}").VERB for name in VERBS.records
    } == (VERBS.records)


def test_a_record_that_is_not_written_with_literals_is_refused(tmp_path: Path, scratch: Registry) -> None:
    file = next(tmp_path.glob("*/greet.py"))
    file.write_text(_GREET.replace('"say hello"', "SUMMARY"))
    with pytest.raises(ValueError, match="malformed"):
        _ = scratch.records
    file.write_text("VERB = None\n")
    with pytest.raises(ValueError, match="ends with a line"):
        _ = scratch.records


def test_words_are_used_once() -> None:
    aliases = [alias for verb in VERBS.records.values() for alias in verb.aliases]
    assert len(aliases) == len(set(aliases))
    assert set(aliases).isdisjoint(VERBS.records)
    orders = [verb.order for verb in VERBS.records.values()]
    assert len(orders) == len(set(orders))


@pytest.mark.parametrize("verb", VERBS.records.values(), ids=VERBS.records)
def test_a_record_is_a_record(verb: Verb) -> None:
    assert verb.summary[:1].islower()
    assert not verb.summary.endswith(".")
    assert verb.description.endswith(".")
    assert verb.examples


@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name, verb in VERBS.records.items() for command, _ in verb.examples]
)
def test_an_example_is_a_command_line_of_its_verb(name: str, command: str) -> None:
    parser = argparse.ArgumentParser()
    VERBS.add_to(parser.add_subparsers(), name)
    word, *arguments = shlex.split(re.split(r" [|<>] ", command)[0])
    assert VERBS.find(word) == name
    parser.parse_args([name, *arguments])


def test_every_example_says_what_it_does() -> None:
    assert all(does.strip() for verb in VERBS.records.values() for _, does in verb.examples)


def test_no_verb_imports_another() -> None:
    for file in (ROOT / "supervisor" / "cli" / "verbs").glob("*.py"):
        froms = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
        assert not [node.module for node in froms if "cli.verbs" in (node.module or "")], file.name


def test_the_list_of_verbs_imports_none(cli: Cli) -> None:
    probe = "import sys, contextlib; from supervisor.cli.main import main\n"
    probe += "with contextlib.suppress(SystemExit): main(['--help'])\n"
    probe += "print([name for name in sys.modules if name.startswith('supervisor.cli.verbs.')])"
    done = subprocess.run([sys.executable, "-c", probe], env=cli.env, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")


def test_one_verb_imports_itself_and_reads_no_other(cli: Cli) -> None:
    probe = "import sys; from supervisor.cli.main import main, VERBS; main(['ps'])\n"
    probe += "print(*sys.modules, 'records' in vars(VERBS), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", probe], env=cli.env, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert [name for name in imported if name.startswith("supervisor.cli.verbs.")] == ["supervisor.cli.verbs.ps"]
    assert "False" in imported, "no record was read"
