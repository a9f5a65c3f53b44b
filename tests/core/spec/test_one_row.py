"""An architecture is one row of the table: nothing else in the core knows its name; a new row is found everywhere."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest

from supervisor.core.gguf import GgufHeader, GgufValue
from supervisor.core.launch import facts_of as launch_facts
from supervisor.core.memory import EstimateOptions, MemoryEstimate, Refusal, context_demand, estimate, refuse
from supervisor.core.spec import ARCHITECTURES, Architecture, describe, lookup, read_spec
from tests.core.memory.support import header_of
from tests.evidence.architectures import WIDE
from tests.evidence.make import write_model
from tests.evidence.subjects import metadata_of, recorded_subjects, tensors_of

ROOT = Path(__file__).parents[3]
CORE = ROOT / "supervisor" / "core"

NOT_ARCHITECTURES: Mapping[str, str] = {
    "spec/architectures.py": "the table",
    "spec/traits.py": "what a row may say: a layout and two kinds of states are called like the first that had them",
    "spec/template.py": "names of chat formats",
    "toolcalls": "names of dialects",
    "gguf/kind.py": "the mark of a projector, before its header is read",
    "repository/names.py": "marks in the names of files",
    "options/launch.py": "words that llama-server takes as values",
    "params/engine.py": "likewise",
    "mlx/table.py": "the names of mlx-lm's kinds of models",
    "mlx/recurrent.py": "likewise",
    "models/registry.py": "the name of the first kind of engines",
}
"""Where in the core a word may be the name of an architecture, and why."""

WORD = re.compile(r"[\w.-]+")
NEW = "newcomer"


def named(text: str) -> Iterator[tuple[int, str]]:
    """Names of architectures in the strings of a module, docstrings aside, with their lines."""
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words = (word.strip(".-") for word in WORD.findall(node.value))
            yield from ((node.lineno, word) for word in words if word in ARCHITECTURES)


def is_excepted(place: str) -> bool:
    return any(place == one or place.startswith(f"{one}/") for one in NOT_ARCHITECTURES)


def test_no_module_of_the_core_but_the_table_names_an_architecture() -> None:
    places = {path.relative_to(CORE).as_posix(): path for path in sorted(CORE.rglob("*.py"))}
    assert all(any(place.startswith(one) for place in places) for one in NOT_ARCHITECTURES)
    found = [
        f"{place}:{line}: {name}: say it as a trait of its row (supervisor/core/spec/architectures.py)"
        for place, path in places.items()
        if not is_excepted(place)
        for line, name in named(path.read_text("utf-8"))
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    "text",
    [
        'if name == "grok": pass',
        '_ROWS = {"gemma3n": 1}',
        'NAMES = "llama qwen3".split()',
        'why = f"{name}: grok, which runs without it"',
        'match name:\n    case "t5":\n        pass',
    ],
)
def test_a_name_is_found(text: str) -> None:
    assert list(named(text))


@pytest.mark.parametrize("text", ['"""As with grok."""', 'x = "llama.cpp knows"', 'key = "clip.has_vision_encoder"'])
def test_other_words_are_no_names(text: str) -> None:
    assert list(named(text)) == []


# -- the row alone decides ---------------------------------------------------------------------------------------------

WAYS = (
    EstimateOptions(ctx_size=4096, parallel=2),
    EstimateOptions(ctx_size=4096, parallel=3, devices=(), flash_attn="off"),
    EstimateOptions(ctx_size=4096, devices=("A", "B", "C"), cache_type_k="q8_0", cache_type_v="q8_0"),
    EstimateOptions(ctx_size=4096, devices=("A", "B"), offload_kv=False),
    EstimateOptions(ctx_size=4096, embeddings=True),
    EstimateOptions(ctx_size=4096, speculative="draft-mtp"),
)
SUBJECTS = [subject for subject in recorded_subjects() if subject.endswith(f"/{WIDE.name}")]


@cache
def recorded(subject: str) -> GgufHeader:
    return header_of(metadata_of(subject), tensors_of(subject))


def renamed(header: GgufHeader, name: str) -> GgufHeader:
    """The same model, of an architecture that is called otherwise."""
    old = f"{header.architecture}."
    metadata: dict[str, GgufValue] = {
        f"{name}.{key.removeprefix(old)}" if key.startswith(old) else key: value
        for key, value in header.metadata.items()
    }
    return replace(header, metadata={**metadata, "general.architecture": name})


def with_row(row: Architecture) -> dict[str, Architecture]:
    return {**ARCHITECTURES, row.name: row}


def plain(found: MemoryEstimate | Refusal) -> dict[str, object] | tuple[str, str]:
    """Without the name, which says nothing of memory."""
    if isinstance(found, Refusal):
        return found.code, re.sub(WORD, "", found.message)
    return asdict(replace(found, arch=""))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_model_is_estimated_by_its_row_whatever_it_is_called(subject: str) -> None:
    header = recorded(subject)
    row = replace(lookup(header.architecture or ""), name=NEW)
    known, new = read_spec(header), read_spec(renamed(header, NEW), with_row(row))
    assert replace(new, architecture=known.architecture) == known
    for options in WAYS:
        assert plain(estimate(new, options)) == plain(estimate(known, options))
        if refuse(known, options) is None:
            assert context_demand(new, options, "pipeline") == context_demand(known, options, "pipeline")


# -- a new row ---------------------------------------------------------------------------------------------------------


def test_a_new_row_is_known_wherever_a_header_is_read() -> None:
    header = renamed(recorded("gemma3/wide"), NEW)
    row = replace(lookup("gemma3"), name=NEW)
    spec = read_spec(header, with_row(row))
    assert spec.architecture is row
    assert spec.window == WIDE.window
    facts = describe(header, spec)
    assert (facts["arch"], facts["arch_known"], facts["layout"]) == (NEW, True, "iswa")
    found = estimate(spec, WAYS[0])
    assert isinstance(found, MemoryEstimate)
    assert found.arch == NEW
    assert not any("not known" in note for note in found.notes)
    unknown = read_spec(header)
    assert not unknown.architecture.known
    assert unknown.window == 0


def test_a_new_row_is_all_that_the_program_needs(tmp_path: Path) -> None:
    """A copy of the program, with one row more, as somebody would add it."""
    shutil.copytree(ROOT / "supervisor", tmp_path / "supervisor", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "supervisor" / "core" / "spec" / "architectures.py"
    before, start, after = table.read_text("utf-8").partition("ROWS: Final = (\n")
    row = f'    Architecture("{NEW}", Layout.ISWA, swa=SwaRule(6), graph=Graph(more_rows=1)),\n'
    table.write_text(before + start + row + after, "utf-8")
    metadata = metadata_of("gemma3/wide")
    new = {key.replace("gemma3.", f"{NEW}."): value for key, value in metadata.items()}
    write_model(tmp_path / "new.gguf", {**new, "general.architecture": NEW}, tensors_of("gemma3/wide"))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SUPERVISOR_HOME": str(tmp_path / "home")}

    def ask(*arguments: str) -> dict[str, object]:
        command = [sys.executable, "-m", "supervisor", *arguments, "--json"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    shown = ask("inspect", str(tmp_path / "new.gguf"))
    assert (shown["arch"], shown["arch_known"], shown["layout"], shown["swa_layers"]) == (NEW, True, "iswa", 7)
    found = ask("estimate", str(tmp_path / "new.gguf"), "--ctx-size", "4096")
    assert NEW in json.dumps(found)
    assert "not known" not in json.dumps(found)


def test_encoders_are_the_table_s() -> None:
    """What only embeds is started as a server of embeddings; an encoder with a cache is asked for them."""
    assert launch_facts(recorded("bert/wide")).encoder
    assert not launch_facts(recorded("t5encoder/wide")).encoder
    assert not launch_facts(recorded("llama/wide")).encoder
