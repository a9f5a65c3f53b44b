"""Makes a site of docs/ with MkDocs: what pages say to readers of a checkout is adapted. Used through `hooks`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[1]
SHOWN = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "config.example.yaml")
"""Files of the project that pages link to; in the site they are in the folder `project`."""

_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<up>(?:\.\./)+)(?P<path>[^)#]+)(?P<anchor>#[^)]*)?\)")
_NAMED = re.compile(r"\[(?P<name>[\w./-]+\.md)\]\((?P<path>[\w./-]+\.md)(?P<anchor>#[^)]*)?\)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^(```\w+) \w+$", re.MULTILINE)


def adapted(text: str, page: str) -> str:
    """Return a page's text for the site.

    Links out of docs/ lead to the folder `project`, or become plain text where the site lacks the file. A second word
    behind the language of a block is for the tests. page: its path in docs/.
    """

    def link(found: re.Match[str]) -> str:
        depth = page.count("/")
        if found["up"].count("../") <= depth:
            return found[0]
        if found["path"] not in SHOWN:
            return found["text"]
        return f"[{found['text']}]({'../' * depth}project/{found['path']}{found['anchor'] or ''})"

    return _BLOCK.sub(r"\1", _LINK.sub(link, text))


def titled(text: str, folder: Path) -> str:
    """Return a page's text with titles in place of file names as the texts of links.

    folder: where the page is, from which its links start.
    """

    def link(found: re.Match[str]) -> str:
        target = folder / found["path"]
        title = _TITLE.search(target.read_text("utf-8")) if target.is_file() else None
        return found[0] if title is None else f"[{title[1]}]({found['path']}{found['anchor'] or ''})"

    return _NAMED.sub(link, text)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name headings as the forges do, so that one link serves both."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the project's own files that pages link to."""
    for name in SHOWN:
        files.append(File.generated(config, f"project/{name}", content=_content(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_others: Any) -> str:
    """Adapt a page that comes from docs/."""
    source = page.file.abs_src_path
    return adapted(titled(markdown, Path(source).parent) if source else markdown, page.file.src_uri)


def _content(path: Path) -> str:
    """A file of the project; its links start from docs/project."""
    text = path.read_text("utf-8")
    if path.suffix != ".md":
        return text
    return re.sub(r"\]\(docs/", "](../", text)
