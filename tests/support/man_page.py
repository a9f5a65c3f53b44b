"""The manual page, made from the same records and parsers as docs/cli.md."""

from __future__ import annotations

import argparse
import re

from supervisor.cli.registry import VERBS, Registry
from tests.support import cli_page
from tests.support.made import ROOT, Made

PAGE = ROOT / "packaging" / "man" / "llama-supervisor.1"
_MARKUP = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")

_ENVIRONMENT = (
    ("SUPERVISOR_CONFIG", "The configuration file."),
    ("SUPERVISOR_HOME", "The folder of the daemon's state and cache."),
    ("SUPERVISOR_ENGINES", "The folder of installed engines."),
    ("SUPERVISOR_LLAMA_SERVER", "The llama-server to use."),
    ("SUPERVISOR_URL", "The daemon to ask, in place of the local one."),
    ("SUPERVISOR_API_KEY", "The key to send; for the daemon, a key that it takes."),
    ("NO_COLOR", "No colours."),
)
_EXIT = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)


def page(verbs: Registry = VERBS) -> str:
    """The page in roff, with the macros of man(7)."""
    parts = {name: cli_page.parts_of(verbs, name) for name in verbs.records}
    shared = cli_page.shared_groups(parts.values())
    lines = [
        '.\\" Made by `python -m tests.support.pages`.',
        '.TH LLAMA-SUPERVISOR 1 "" "llama-supervisor" "User Commands"',
        *_section("NAME", "llama-supervisor, supervisor \\- run many llama.cpp models on one machine"),
        *_section("SYNOPSIS", ".B supervisor", ".I VERB", "[", ".I options", "]"),
        *_section(
            "DESCRIPTION",
            escaped("One daemon runs many llama.cpp models on one machine. OpenAI clients name a model; the daemon"),
            escaped("starts a llama-server for it where it fits, and makes room when another model is wanted."),
            escaped("`llama-supervisor` is the same command."),
        ),
        ".SH VERBS",
    ]
    for name, verb in verbs.records.items():
        lines += _verb(verb.description, parts[name], verb.examples, shared)
    lines.append(".SH OPTIONS OF SEVERAL VERBS")
    for title, rows in shared.items():
        lines += [f".SS {escaped(title[:1].upper() + title[1:])}", *_rows(rows)]
    lines += [
        ".SH ENVIRONMENT",
        *_pairs(_ENVIRONMENT),
        ".SH EXIT STATUS",
        *_pairs(_EXIT.findall(cli_page.PAGE.read_text("utf-8"))),
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return a text as roff shows it: no letter of it is a command."""
    plain = _LINK.sub(r"\1", _MARKUP.sub(r"\1", text)).replace("\\|", "|")
    found = (
        plain.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("…", "...").replace("–", "\\(en")
    )
    return f"\\&{found}" if found.startswith(".") else found


def _section(title: str, *lines: str) -> list[str]:
    return [f".SH {title}", *lines]


def _verb(
    description: str, parts: list[cli_page.Part], examples: tuple[tuple[str, str], ...], shared: cli_page.Groups
) -> list[str]:
    lines = [f".SS {escaped(cli_page.usage(parts[0].parser) if len(parts) == 1 else parts[0].name.split()[0])}"]
    lines.append(escaped(" ".join(description.split())))
    for part in parts:
        lines += _part(part.parser, part.groups, shared, inner=len(parts) > 1 or " " in part.name)
    for command, does in examples:
        lines += [".PP", f".B supervisor {escaped(command)}", ".br", escaped(does)]
    return lines


def _part(
    parser: argparse.ArgumentParser, groups: cli_page.Groups, shared: cli_page.Groups, *, inner: bool
) -> list[str]:
    lines = [".PP", f".B supervisor {escaped(cli_page.usage(parser))}", ".br"] if inner else []
    lines += [escaped(" ".join((parser.description or "").split()))] if inner else []
    for title, rows in groups.items():
        lines += _rows(rows) if shared.get(title) != rows else []
    return lines


def _rows(rows: tuple[str, ...]) -> list[str]:
    """Rows of a table of docs/cli.md as a list of terms."""
    cells = [re.split(r"(?<!\\) \| ", row.strip().removeprefix("| ").removesuffix(" |"), maxsplit=1) for row in rows]
    return _pairs((cell[0], cell[1] if len(cell) > 1 else "") for cell in cells)


def _pairs(pairs: cli_page.Pairs) -> list[str]:
    return [line for term, text in pairs for line in (".TP", f".B {escaped(term)}", escaped(text) or "\\&")]


MAN = Made(PAGE, re.compile(r"\A\.\\\" Made by .*\n(?:.*\n)*"), page)
