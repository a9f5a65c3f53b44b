"""The errors of docs/troubleshooting.md: a section each, made from its class, with what to do, which is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from supervisor import errors
from supervisor.core.engine_output.failures import MEANINGS
from tests.support.error_table import error_classes
from tests.support.made import ROOT, Made

PAGE = ROOT / "docs" / "troubleshooting.md"
LOADS = "Loads that fail"
_AREAS: tuple[tuple[str, type[errors.SupervisorError]], ...] = (
    ("The daemon", errors.DaemonError),
    ("The engine", errors.EngineError),
    ("The hub", errors.HubError),
    ("Models", errors.ModelError),
    ("Requests", errors.RequestError),
)
_OTHERS = "The program and its configuration"
_KEPT = re.compile(r"^### (\w+)\n\n> [^\n]*\n\n(.*?)(?=^###? |\Z)", re.MULTILINE | re.DOTALL)


def told() -> dict[str, str]:
    """What to do about each code, as the page says it now."""
    return {code: text.strip() for code, text in _KEPT.findall(PAGE.read_text("utf-8"))}


def areas() -> dict[str, dict[str, str]]:
    """Each heading with its codes, and what each of them means."""
    found: dict[str, dict[str, str]] = {_OTHERS: {}, **{title: {} for title, _ in _AREAS}, LOADS: {}}
    for kind in error_classes():
        title = next((title for title, base in _AREAS if issubclass(kind, base)), _OTHERS)
        meaning = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
        found[title][kind.code] = meaning
    known = {code for codes in found.values() for code in codes}
    found[LOADS] = {code: meaning for code, meaning in MEANINGS.items() if code not in known}
    return found


def sections() -> str:
    """The page from its first area on."""
    return "\n".join(lines(told()))


def lines(by_hand: dict[str, str]) -> Iterator[str]:
    """The areas with their sections; `by_hand` has what to do about each code."""
    for title, codes in areas().items():
        yield f"## {title}\n"
        for code, meaning in codes.items():
            yield f"### {code}\n\n> {meaning}\n\n{by_hand.get(code, '')}\n"


ERRORS = Made(PAGE, re.compile(rf"^## {_OTHERS}\n(?:.*\n)*", re.MULTILINE), sections)
