"""Every path of another program that we answer for leads to a path that is there, and is not there itself."""

from __future__ import annotations

import re

import pytest

from supervisor.core.requests.elsewhere import ELSEWHERE, ours_for
from supervisor.core.routes import ASKED, SERVED
from tests.support.routes import served_routes

THEIRS = [(program, path, ours) for program, paths in ELSEWHERE.items() for path, ours in paths.items()]


def served() -> set[str]:
    found = {f"{method} {route.path}" for route in served_routes() for method in route.methods or ()}
    return (
        found
        | {f"POST {path}" for path in SERVED}
        | {f"{method} {row.path}" for row in ASKED for method in row.summary}
    )


OURS = served()


@pytest.mark.parametrize(("program", "path", "ours"), THEIRS)
def test_the_path_that_is_named_is_there(program: str, path: str, ours: str) -> None:
    assert ours in OURS or re.fullmatch(rf"(GET|POST) /upstream/MODEL{path}", ours)
    assert not any(own.partition(" ")[2] == path for own in OURS)
    for spelled in (path, f"{path}/"):
        assert ours_for(spelled) == f"What it does in {program}, {ours} does here."


def test_no_path_stands_twice() -> None:
    paths = [path for _, path, _ in THEIRS]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("path", ["", "/", "/nowhere", "/api", "/API/chat"])
def test_others_are_unknown(path: str) -> None:
    assert ours_for(path) is None
