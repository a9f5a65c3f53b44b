"""The engine's environment."""

from __future__ import annotations

import pytest

from supervisor.core.launch import LibraryPath, has_runtime, library_path, with_libraries


@pytest.mark.parametrize(
    ("platform", "variable", "separator"),
    [("linux", "LD_LIBRARY_PATH", ":"), ("darwin", "DYLD_LIBRARY_PATH", ":"), ("win32", "PATH", ";")],
)
def test_folders_come_before_what_is_there(platform: str, variable: str, separator: str) -> None:
    path = library_path(platform, "/bin", ("/cuda", "/bin", "/more"))
    env = {variable: separator.join(("/old", "/cuda")), "HOME": "/h"}
    found = with_libraries(env, path)
    assert found == {variable: separator.join(("/bin", "/cuda", "/more", "/old")), "HOME": "/h"}
    assert env[variable] == separator.join(("/old", "/cuda")), "the one that was given stays as it was"


def test_an_empty_entry_would_be_the_working_folder() -> None:
    assert with_libraries({"LD_LIBRARY_PATH": ""}, LibraryPath(("/a",))) == {"LD_LIBRARY_PATH": "/a"}
    assert with_libraries({"LD_LIBRARY_PATH": ":/b:"}, LibraryPath(("/a",))) == {"LD_LIBRARY_PATH": "/a:/b"}


def test_a_binary_that_needs_nothing_gets_nothing() -> None:
    assert with_libraries({"A": "b"}, library_path("linux", "/bin", ())) == {"A": "b"}


def test_what_belongs_to_a_runtime() -> None:
    assert has_runtime("cuda", ["libcudart.so.12"])
    assert not has_runtime("cuda", ["libcudnn.so.9", "libamdhip64.so"])
    assert has_runtime("hip", ["libamdhip64.so.6"])
