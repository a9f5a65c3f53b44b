"""Names that a hub gives: which may become paths on this machine."""

from __future__ import annotations

import ntpath
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.repository import forms

ELSEWHERE = ["../x.gguf", "a/../../x.gguf", "/etc/x.gguf", "a//x.gguf", "./x.gguf", "a/..", "x\0.gguf", "", "a/"]
TROUBLE = [
    *("..\\x.gguf", "C:\\x.gguf", "C:x.gguf", "\\\\host\\share\\x.gguf", "x.gguf:stream", "a/con.gguf", "NUL", "com1"),
    *("x.gguf.", "x.gguf ", "a. /x.gguf", "x\n.gguf", "x\x1b[2J.gguf", "x\x7f", "x\u202egguf", "what?.gguf", "*.gguf"),
    *("n" * 256, "ä" * 128, "/".join(["abcdefgh"] * 120), "x\ud800.gguf"),
]
PLAIN = ["x.gguf", "Q8_0/x-00001-of-00002.gguf", "a b (c) [d] ü 模型.gguf", "..x", "n" * 255, "console.gguf", ".a/b"]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_path_that_leads_elsewhere(path: str) -> None:
    assert forms.leads_elsewhere(path)
    assert not forms.is_plain_path(path)


@pytest.mark.parametrize("path", TROUBLE)
def test_a_path_that_not_every_system_keeps(path: str) -> None:
    assert not forms.leads_elsewhere(path)
    assert not forms.is_plain_path(path)


@pytest.mark.parametrize("path", PLAIN)
def test_a_plain_path(path: str) -> None:
    assert forms.is_plain_path(path)


@given(st.lists(st.sampled_from(["..", ".", "", "a", "\\", "C:", "b.gguf", " ", "\0"]), min_size=1, max_size=6))
def test_whatever_is_plain_stays_below_its_folder(parts: list[str]) -> None:
    path = "/".join(parts)
    if forms.is_plain_path(path):
        assert posixpath.normpath(posixpath.join("/top", path)).startswith("/top/")
        assert ntpath.normpath(ntpath.join("C:\\top", path)).startswith("C:\\top\\")


@given(st.text(max_size=140))
def test_a_contents_name_is_one_name(text: str) -> None:
    if forms.is_content_name(text):
        assert not set(text) & set("./\\:\0 ")
        assert not forms.leads_elsewhere(text)


@pytest.mark.parametrize(
    ("text", "commit", "sha"),
    [("a" * 40, True, False), ("A" * 40, False, False), ("a" * 64, False, True), ("a" * 39 + "\n", False, False)],
)
def test_hashes(text: str, commit: bool, sha: bool) -> None:
    assert (forms.is_commit(text), forms.is_sha256(text)) == (commit, sha)


@pytest.mark.parametrize("text", ["../x", "a", "a/b/c", "a/..", "datasets/x", "a/x.git", "a/b--c", "/b", "a/"])
def test_no_repository(text: str) -> None:
    assert not forms.is_repository(text)


def test_a_repository() -> None:
    assert forms.is_repository("Owner/Name-1.5_GGUF")
