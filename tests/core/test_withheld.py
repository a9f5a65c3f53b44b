"""What an engine must do for nobody is found in every spelling, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.routes import SERVED, is_withheld

NEVER = ("tools", "cors-proxy")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "post")
GAPS = st.lists(
    st.sampled_from(["/", "//", "/./", "/.", "/x/../", "/X/./..", "\\", "%2f", "%2F", " /", "/\t"]), max_size=4
)


@st.composite
def spelt(draw: st.DrawFn, name: str) -> str:
    letters = [draw(st.sampled_from([one, one.upper(), f"%{ord(one):02x}", f"%{ord(one):02X}"])) for one in name]
    before, after = "".join(draw(GAPS)), "".join(draw(GAPS))
    return f"/{before}/{''.join(letters)}{draw(st.sampled_from(['', ';x=1', ' ', chr(0), '?x=1']))}/{after}".rstrip("?")


@given(st.sampled_from(NEVER).flatmap(spelt), st.sampled_from(METHODS))
def test_tools_and_proxy_are_withheld(path: str, method: str) -> None:
    assert is_withheld(method, path)


@given(spelt("props"), st.sampled_from(METHODS))
def test_settings_are_looked_at_and_never_changed(path: str, method: str) -> None:
    assert is_withheld(method, path) == (method != "GET")


@pytest.mark.parametrize("path", [*SERVED, "/", "", "/metrics", "/toolsx", "/tools/x", "/x/tools", "/slots/0"])
def test_nothing_else_is_withheld(path: str) -> None:
    assert not any(is_withheld(method, path) for method in METHODS)
