"""One row is all that a launch option needs: a scratch one is found wherever options are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from supervisor.cli.launching import add_launch_options, launch_options
from supervisor.config.base import Strict
from supervisor.config.imports.arguments import QUIET, Spellings, read_arguments
from supervisor.config.imports.preset import from_preset
from supervisor.config.options import chosen_from, with_options
from supervisor.config.words import other_names
from supervisor.core.launch import LoraAdapter, ModelFacts, build_launch
from supervisor.core.launch.keeping import slots_key
from supervisor.core.launch.rules import Rule, rules_with
from supervisor.core.options import LaunchOptions, Mark, Option, option, options_of
from supervisor.core.options.kinds import File, Slots, Tokens
from supervisor.errors import OptionNotSupported
from tests.support.cli_page import groups_of
from tests.support.option_tables import example, table
from tests.support.option_values import values_of


@dataclass(frozen=True)
class Scratch(LaunchOptions):
    """Three options more than there are."""

    scratch_size: Tokens | None = option(
        "--scratch-size --old-scratch -scs", "paper for notes", Mark.FREE | Mark.TYPED, others="notepad", example="4k"
    )
    scratch_pages: Slots | None = option("--scratch-pages", "pages of it")
    scratch_file: File | None = option("--scratch-file", "where it is kept", Mark.CONFIGURATION)


ROWS = options_of(Scratch)


@with_options(row for row in ROWS if row.client)
class ClientSettings(Strict):
    """What a client may give."""


@with_options(row for row in ROWS if not row.client)
class FileSettings(ClientSettings):
    """What may stand in a file."""


def test_the_rows_of_a_table_are_its_fields() -> None:
    assert [row.name for row in ROWS[-3:]] == ["scratch_size", "scratch_pages", "scratch_file"]
    assert ROWS[:-3] == options_of(LaunchOptions)


def test_the_settings_have_it_with_its_bounds() -> None:
    made = FileSettings.model_validate({"scratch_size": "4k", "scratch_pages": 256, "scratch_file": "/x"})
    assert chosen_from(Scratch, made) == Scratch(scratch_size=4096, scratch_pages=256, scratch_file="/x")
    for wrong in ({"scratch_size": -1}, {"scratch_size": True}, {"scratch_pages": 257}, {"scratch_file": "x" * 4097}):
        with pytest.raises(ValidationError):
            FileSettings.model_validate(wrong)


def test_the_schema_has_it() -> None:
    pages = FileSettings.model_json_schema()["properties"]["scratch_pages"]
    assert pages["anyOf"] == [{"type": "integer", "minimum": 1, "maximum": 256}, {"type": "null"}]


def test_clients_give_what_is_theirs_alone() -> None:
    assert chosen_from(Scratch, ClientSettings.model_validate({"scratch_pages": 2})) == Scratch(scratch_pages=2)
    with pytest.raises(ValidationError):
        ClientSettings.model_validate({"scratch_file": "/x"})


def test_the_example_the_pages_and_the_flags_have_it() -> None:
    assert "    scratch_size: 4k       # paper for notes\n    scratch_pages: null    # pages of it\n" in example(ROWS)
    assert "| `scratch_size` | tokens | anybody | paper for notes |\n" in table(ROWS)
    assert "| `scratch_pages` | slots, 1 to 256 | anybody | pages of it |\n" in table(ROWS)
    assert "| `scratch_file` | path | configuration | where it is kept |\n" in table(ROWS)
    parser = argparse.ArgumentParser()
    add_launch_options(parser, [row for row in ROWS if Mark.TYPED in row.marks])
    flags = "".join(row for rows in groups_of(parser).values() for row in rows)
    assert "| `-scs`, `--scratch-size N` | paper for notes" in flags
    assert "scratch-pages" not in flags


def test_the_command_line_has_it() -> None:
    parser = argparse.ArgumentParser()
    typed = [row for row in ROWS if Mark.TYPED in row.marks]
    add_launch_options(parser, typed)
    assert "paper for notes" in parser.format_help()
    for words in (["-scs", "4k"], ["--scratch-size", "4096"], ["--set", "scratch-size=4096"]):
        assert launch_options(parser.parse_args(words), typed) == {"scratch_size": 4096}
    with pytest.raises(SystemExit):
        parser.parse_args(["-scs", "-1"])


def test_the_arguments_have_it() -> None:
    def argv(options: Scratch, flags: dict[str, int] | None = None) -> tuple[str, ...]:
        return build_launch("s", "m", "x.sock", "a", options, ModelFacts(), flags).argv

    both = Scratch(scratch_size=5, scratch_pages=2)
    assert argv(both)[-4:] == ("--scratch-size", "5", "--scratch-pages", "2")
    assert argv(Scratch(scratch_size=5), {"--old-scratch": 1})[-2:] == ("--old-scratch", "5")
    with pytest.raises(OptionNotSupported) as caught:
        argv(both, {"--old-scratch": 1})
    assert caught.value.param == "scratch_pages"


def test_its_flag_is_none_of_the_further_arguments() -> None:
    rules = rules_with(ROWS)
    assert rules["-scs"] == Rule("field", "scratch_size")
    assert rules["--scratch-file"] == Rule("field", "scratch_file", client=False)


def test_its_other_names_lead_to_it() -> None:
    names = other_names(ROWS)
    assert {names[other] for other in ("scs", "old_scratch", "notepad", "scratch_size")} == {"scratch_size"}


@pytest.mark.parametrize("words", [["--scratch-size", "4k"], ["--old-scratch=4k"], ["--scratch_size", "4096"]])
def test_the_command_lines_of_other_programs_lead_to_it(words: list[str]) -> None:
    read = read_arguments([*words, "--scratch-pages", "many"], Spellings(ROWS, FileSettings))
    assert read.settings == {"scratch_size": 4096}
    assert [note.partition(":")[0] for note in read.notes] == ["--scratch-pages"]


def test_the_presets_of_a_router_lead_to_it() -> None:
    preset = "[m]\nmodel = /m.gguf\nscratch-size = 4k\nLLAMA_ARG_SCRATCH_PAGES = 2\n"
    carried = from_preset(preset, Spellings(ROWS, FileSettings))
    assert carried.models["m"] == {"file": "/m.gguf", "scratch_size": 4096, "scratch_pages": 2}
    assert carried.notes == []


SPELLED = [(row, flag) for row in options_of(LaunchOptions) for flag in (*row.on, *row.off) if flag not in QUIET]


@pytest.mark.parametrize(("row", "flag"), SPELLED, ids=[flag for _, flag in SPELLED])
def test_every_spelling_is_read_from_the_command_lines_of_other_programs(row: Option, flag: str) -> None:
    """The rules of those that are no plain value have to be written; this finds one that is not."""
    found = [read_arguments([flag, *words]) for value in values_of(row) for words in ([], [spelled_out(value)])]
    assert any(row.name in read.settings and "extra_args" not in read.settings for read in found)


def spelled_out(value: object) -> str:
    """The value as it stands on a command line."""
    if isinstance(value, LoraAdapter):
        return f"{value.path}:{value.scale}"
    if isinstance(value, Mapping):
        return json.dumps(value)
    return ",".join(map(spelled_out, value)) if isinstance(value, tuple) else str(value)


def test_saved_slots_survive_what_is_marked_so() -> None:
    def key(options: LaunchOptions) -> str:
        return slots_key((), "e", options, ("f16", "f16"))

    assert key(Scratch(scratch_size=1)) == key(Scratch())
    assert key(Scratch(scratch_pages=1)) != key(Scratch())
