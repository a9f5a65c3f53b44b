"""The site made of docs/: it builds strictly, has every page, asks nothing of the network, and explains every error."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from releasing import site
from supervisor.cli.main import build_parser
from supervisor.cli.registry import VERBS
from supervisor.config import Settings
from supervisor.config.settings import ModelSettings
from tests.support import reference_pages, trouble_page
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))


def named(nav: object) -> Iterator[str]:
    """The pages of a `nav`."""
    if isinstance(nav, str):
        yield nav
    for one in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from named(one)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_its_place_in_the_site(page: str) -> None:
    assert page in set(named(CONFIG["nav"])), f"add {page} to `nav` in mkdocs.yml, below the heading that it belongs to"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a link or an anchor that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """What a page makes a browser fetch by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in {"script", "img", "iframe", "source", "video", "audio", "embed"}:
            self.found.append(given.get("src", ""))
        elif tag == "link" and given.get("rel") != "canonical":
            self.found.append(given.get("href", ""))


def test_a_browser_is_sent_nowhere_else(built: Path) -> None:
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        seen = Loaded()
        seen.feed(page.read_text("utf-8"))
        assert [address for address in seen.found if re.match(r"(?:[a-z]+:)?//", address)] == [], page.name
    for style in built.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text("utf-8")), style.name


def test_the_site_has_the_files_of_the_project_that_pages_link_to(built: Path) -> None:
    for name in ("CHANGELOG", "CONTRIBUTING"):
        assert (built / "project" / f"{name}.html").is_file()
    assert (built / "project" / "config.example.yaml").is_file()


def test_blocks_of_code_are_blocks_of_code(built: Path) -> None:
    for page in built.rglob("*.html"):
        text = re.sub(r"<(pre|code)[^>]*>.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert "```" not in text, page.name


@pytest.mark.parametrize("page", PAGES)
def test_no_drawing_needs_a_script(page: str) -> None:
    """Draw it as SVG, or say it as a table: the site loads no script that turns a text into a drawing."""
    fences = re.findall(r"^ *```(\w+)", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    assert not {"mermaid", "dot", "graphviz", "plantuml"} & set(fences)


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("See [it](../CONTRIBUTING.md#x).", "See [it](project/CONTRIBUTING.md#x)."),
        ("[a](../config.example.yaml)", "[a](project/config.example.yaml)"),
        ("[a](../tests/a/b.md)", "a"),
        ("[a](hub.md)", "[a](hub.md)"),
        ("[a](https://example.org/../x)", "[a](https://example.org/../x)"),
        ("```yaml profile", "```yaml"),
        ("```sh", "```sh"),
    ],
)
def test_what_only_a_checkout_has_is_adapted(line: str, becomes: str) -> None:
    assert site.adapted(line, "rest.md") == becomes


def test_a_page_of_a_folder_names_the_projects_files_from_there() -> None:
    assert site.adapted("[a](../../CHANGELOG.md)", "recipes/x.md") == "[a](../project/CHANGELOG.md)"
    assert site.adapted("[a](../hub.md)", "recipes/x.md") == "[a](../hub.md)"


def test_a_link_says_the_title_of_its_page_and_not_its_file() -> None:
    assert (
        site.titled("Read [hub.md](hub.md#x), [it](rest.md).", DOCS)
        == "Read [Models of the hub](hub.md#x), [it](rest.md)."
    )
    assert site.titled("[../hub.md](../hub.md)", DOCS / "recipes") == "[Models of the hub](../hub.md)"
    assert site.titled("[gone.md](gone.md) `[hub.md]`", DOCS) == "[gone.md](gone.md) `[hub.md]`"


def test_no_page_of_the_site_names_pages_by_their_files(built: Path) -> None:
    named = [
        found for page in built.glob("*.html") for found in re.findall(r">([a-z-]+\.md)</a>", page.read_text("utf-8"))
    ]
    assert named == []


CODES = {code: meaning for codes in trouble_page.areas().values() for code, meaning in codes.items()}


@pytest.mark.parametrize("code", CODES)
def test_every_error_has_what_to_do(code: str) -> None:
    advice = trouble_page.told().get(code, "")
    assert len(advice.split()) >= 4, f"write below `### {code}` of docs/troubleshooting.md what to do about it"
    assert advice != CODES[code]


def test_no_code_is_that_of_two_errors() -> None:
    assert sum(len(codes) for codes in trouble_page.areas().values()) == len(CODES)


def test_the_page_has_no_error_that_is_gone() -> None:
    assert trouble_page.told().keys() == CODES.keys()


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"`supervisor ([a-z][^`]*)`", trouble_page.PAGE.read_text("utf-8"))))
)
def test_commands_that_help_are_commands(command: str) -> None:
    words = shlex.split(command)
    verb = VERBS.find(words[0])
    assert verb is not None
    known = (option for option in words if option.startswith("-"))
    text = _help_of(verb)
    assert [option for option in known if option not in text] == []
    assert [word for word in words[1:2] if word.islower() and not word.startswith("-") and word not in text] == []


def _help_of(verb: str) -> str:
    """The help of a verb and of its own verbs."""
    page = (DOCS / "cli.md").read_text("utf-8")
    assert build_parser(verb)
    found = re.search(rf"^### {verb}\n.*?(?=^### )", page, re.MULTILINE | re.DOTALL)
    shared = page[page.index("## Options of several verbs") :]
    return (found[0] if found else "") + shared


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "boolean"}, "`true`, `false`"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "whole number from 1 to 5"),
        ({"type": "integer", "minimum": 1, "maximum": 2**31 - 1}, "whole number from 1"),
        ({"type": "number", "exclusiveMinimum": 0}, "number above 0"),
        ({"type": ["string", "null"]}, "text or null"),
        ({"enum": ["on", "off"]}, "`on`, `off`"),
        ({"anyOf": [{"type": "null"}, {"type": "string", "pattern": r"\$\{[^{}]+\}"}]}, "null"),
        (
            {"type": "array", "items": {"$ref": "#/components/schemas/ModelStatus"}},
            "list of [ModelStatus](#modelstatus)",
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "text, by name"),
        ({"type": "string", "pattern": "^[0-9]{1,15} ?[kKmM]$"}, "text as `32k`"),
    ],
)
def test_the_reference_says_in_words_what_a_value_is(schema: dict[str, Any], words: str) -> None:
    assert reference_pages.value(schema) == words


RECIPES = "\n".join(path.read_text("utf-8") for path in sorted((DOCS / "recipes").glob("*.md")))


def test_recipes_name_the_address_of_the_daemon() -> None:
    named = set(re.findall(r"127\.0\.0\.1:(\d+)", RECIPES))
    assert named == {str(Settings().server.port), "3000"}, "3000 is Open WebUI's"


@pytest.mark.parametrize("text", re.findall(r"```json\n(.*?)```", RECIPES, re.DOTALL))
def test_files_of_other_programs_can_be_read(text: str) -> None:
    assert json.loads(text)


def test_every_setting_that_stands_for_one_of_ollama_is_there() -> None:
    rows = re.findall(r"^\| `OLLAMA_\w+` \| (.*) \|$", RECIPES, re.MULTILINE)
    keys = [key for row in rows for key in re.findall(r"`([\w.]+)`", row)]
    assert len(keys) > 8
    known = {f"{section}.{key}" for section in ("server", "queue") for key in getattr(Settings(), section).model_dump()}
    assert [key for key in keys if key not in known | ModelSettings.model_fields.keys()] == []


def test_a_recipe_names_files_that_are_there() -> None:
    found = set(re.findall(r"packaging/[\w./-]+\w", RECIPES))
    assert len(found) > 3
    assert [name for name in found if not (ROOT / name).exists()] == []
