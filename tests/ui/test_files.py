"""The dashboard's files: whole, small, from nowhere else, and nothing in them that its policy would have to forgive."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.ui.files import find, page_files
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.lacking import lacking
from tests.support.vendored import OURS, PAGE, fetched, recorded_sum

MOST_BYTES = 300_000
BROWSER = {"user-agent": "Mozilla/5.0", "accept": "text/html,*/*;q=0.8", "sec-fetch-site": "none"}
OWN = sorted(path for path in PAGE.glob("*.js") if path != OURS)
HTML_FROM_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|DOMParser|setHTML|srcdoc"
    r"|\beval\(|new Function|setAttribute\(\s*[\"'](?:style|on)"
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon with a key. No engine is needed."""
    key = {"SUPERVISOR_API_KEY": "a-key-for-this-test"}
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), env=key) as running:
        yield running


def test_all_files_are_served_without_a_key(daemon: RunningDaemon) -> None:
    page = daemon.http.get("/ui", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert daemon.http.get("/ui/").content == page.content == (PAGE / "index.html").read_bytes()
    assert {"main.js", "preact.js", "style.css", "icon.svg", "index.html"} < set(page_files())
    for name in page_files():
        answer = daemon.http.get(f"/ui/{name}", headers={**BROWSER, "sec-fetch-site": "same-origin"})
        assert answer.status_code == 200
        assert answer.content == (PAGE / name).read_bytes()


def test_nothing_else_is_served(daemon: RunningDaemon) -> None:
    for name in ("README.md", "nothing.js", "..%2ffiles.py", "%2e%2e/files.py", "page/main.js", "LICENSE-htm.txt"):
        assert daemon.http.get(f"/ui/{name}").json()["error"]["code"] == "route_not_found"
    for method in ("POST", "DELETE", "OPTIONS"):
        assert daemon.http.request(method, "/ui").status_code == 401
    assert daemon.http.get("/", headers=BROWSER).headers["location"] == "/ui"
    assert daemon.http.get("/").status_code == 401, "a program is no browser"
    assert daemon.http.post("/", headers=BROWSER).status_code == 401


@pytest.mark.parametrize("name", page_files())
def test_a_page_may_use_only_what_is_the_daemon_s(daemon: RunningDaemon, name: str) -> None:
    headers = daemon.http.get(f"/ui/{name}").headers
    policy = dict(one.split(" ", 1) for one in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert headers["x-content-type-options"] == "nosniff"


def test_an_unchanged_file_is_not_sent_again(daemon: RunningDaemon) -> None:
    first = daemon.http.get("/ui/main.js")
    again = daemon.http.get("/ui/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert daemon.http.get("/ui/main.js", headers={"if-none-match": '"another"'}).status_code == 200


def test_the_page_is_small() -> None:
    files = [find(name) for name in page_files()]
    assert 50_000 < sum(len(one.content) for one in files if one) <= MOST_BYTES


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?! type=\"module\" src=)|<style| on\w+=| style=", page) == []
    needed = re.findall(r'(?:src|href)="/ui/([^"]*)"', page)
    assert set(needed) <= set(page_files())


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_a_module_makes_no_html_of_text_and_asks_nobody_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert HTML_FROM_TEXT.findall(text) == []
    assert re.findall(r"https?://|//\w+\.\w", text) == []
    assert set(re.findall(r'from "\./([^"]+)"', text)) <= set(page_files())
    assert re.findall(r"\b\w+ in [A-Z_]{2,}\b", text) == [], "`in` finds `constructor` too: use Object.hasOwn"
    assert text.count("\n") <= 400
    assert text.startswith("// "), "says what it is for"


def test_every_module_is_used() -> None:
    used = {name for path in OWN for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8"))}
    assert used | {"main.js"} == {path.name for path in PAGE.glob("*.js")}


def test_every_file_is_in_the_readme() -> None:
    told = (PAGE / "README.md").read_text(encoding="utf-8")
    assert [name for name in page_files() if f"`{name}`" not in told] == []


def test_the_framework_is_the_one_that_the_readme_names() -> None:
    assert hashlib.sha256(OURS.read_bytes()).hexdigest() == recorded_sum()
    assert {"LICENSE-htm.txt", "LICENSE-preact.txt"} < {path.name for path in PAGE.iterdir()}


def test_the_framework_can_be_fetched_anew() -> None:
    if shutil.which("npm") is None:
        lacking("npm fetches the framework")
    assert fetched() == OURS.read_bytes()
