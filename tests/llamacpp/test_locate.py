"""Which llama-server is taken, and what becomes of those that don't work."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.errors import EngineNotFound, EngineUnusable
from supervisor.llamacpp.locate import EngineBinary, locate, search
from supervisor.llamacpp.store import EngineStore, Manifest
from supervisor.system.paths import Places
from tests.llamacpp.fakes import make_server

MISSING_LIBRARY = "#!/bin/sh\necho 'error while loading shared libraries: libllama.so' >&2\nexit 127\n"


def put_engine(places: Places, name: str, build: int, *, aside: bool = False) -> Path:
    store = EngineStore(places.engines)
    made = store.new_scratch("test") / "engine"
    make_server(made / "bin", build)
    store.place(made, Manifest(name, build, None, "cpu", "release", "", 1, aside=aside))
    return store.binary(name)


def test_the_order(places: Places, tmp_path: Path) -> None:
    """Each candidate, taken away, uncovers the next."""
    option, first, second = (make_server(tmp_path / name) for name in ("option", "first", "second"))
    chosen, newest = put_engine(places, "old", 1), put_engine(places, "new", 2)
    aside = put_engine(places, "aside", 3, aside=True)
    EngineStore(places.engines).choose("old")
    on_path = make_server(tmp_path / "path")
    working, home = tmp_path / "working", tmp_path / "home"
    built = make_server(working / "llama.cpp" / "build" / "bin")
    built_at_home = make_server(home / "llama.cpp" / "build" / "bin")
    env = {"SUPERVISOR_LLAMA_SERVER": str(first), "LLAMA_SERVER_PATH": str(second), "PATH": str(on_path.parent),
           "HOME": str(home)}  # fmt: skip
    expected = [
        (option, "option"),
        (first, "SUPERVISOR_LLAMA_SERVER"),
        (second, "LLAMA_SERVER_PATH"),
        (chosen, "chosen"),
        (newest, "installed"),
        (on_path, "path"),
        (built, "build-folder"),
        (built_at_home, "build-folder"),
        (aside, "installed"),
    ]
    explicit: str | None = str(option)
    for path, source in expected:
        assert search(places, env, explicit, cwd=working).found == EngineBinary(path, source)
        explicit = None
        env.pop(source, None)
        if source not in {"option", "SUPERVISOR_LLAMA_SERVER", "LLAMA_SERVER_PATH"}:
            path.unlink()
    assert search(places, env, None, cwd=working).found is None


@pytest.mark.parametrize("given", ["server/llama-server", "server", "."])
def test_a_file_or_its_folder_can_be_named(places: Places, tmp_path: Path, given: str) -> None:
    server = make_server(tmp_path / "server" / ("bin" if given == "." else ""))
    place = tmp_path / "server" if given == "." else tmp_path / given
    assert locate(places, {}, str(place)) == EngineBinary(server, "option")


def test_an_installed_engine_can_be_named(places: Places) -> None:
    server = put_engine(places, "b7-cpu", 7)
    assert locate(places, {}, "b7-cpu") == EngineBinary(server, "option")


@pytest.mark.parametrize("variable", ["SUPERVISOR_LLAMA_SERVER", "LLAMA_SERVER_PATH"])
def test_what_was_named_must_be_there(places: Places, tmp_path: Path, variable: str) -> None:
    on_path = make_server(tmp_path / "path")
    env = {variable: str(tmp_path / "gone"), "PATH": str(on_path.parent)}
    with pytest.raises(EngineNotFound, match=variable):
        locate(places, env, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (MISSING_LIBRARY, "libllama.so"),
        ("#!/bin/sh\necho 'version: 1 (a)'\n", "names no --model"),
        ("\x7fELF of another machine", "does not start on this machine"),
    ],
)
def test_what_was_named_must_work(places: Places, tmp_path: Path, text: str, reason: str) -> None:
    broken = make_server(tmp_path / "broken", text=text)
    with pytest.raises(EngineUnusable, match=reason):
        locate(places, {"PATH": str(make_server(tmp_path / "path").parent)}, str(broken))


def test_what_lies_around_broken_is_passed_over_with_its_reason(places: Places, tmp_path: Path) -> None:
    broken = make_server(tmp_path / "broken", text=MISSING_LIBRARY)
    plain = make_server(tmp_path / "plain")
    plain.chmod(0o644)
    good = make_server(tmp_path / "good")
    path = ":".join(str(server.parent) for server in (broken, plain, good))
    found = search(places, {"PATH": path}, None, cwd=tmp_path)
    assert found.found == EngineBinary(good, "path")
    assert [(s.path, s.reason.rpartition(": ")[2]) for s in found.skipped] == [
        (broken, "libllama.so"),
        (plain, f"{plain} is not an executable file"),
    ]


def test_nothing_found_says_what_to_run_and_what_was_there(places: Places, tmp_path: Path) -> None:
    broken = make_server(tmp_path / "broken", text=MISSING_LIBRARY)
    with pytest.raises(EngineNotFound, match=r"(?s)supervisor engine install.*libllama\.so") as caught:
        locate(places, {"PATH": str(broken.parent), "HOME": str(tmp_path)}, None)
    assert caught.value.param is None


def test_a_program_that_others_can_replace_is_not_run(places: Places, tmp_path: Path) -> None:
    server = make_server(tmp_path / "bin")
    server.parent.chmod(0o777)
    assert search(places, {"HOME": str(tmp_path)}, None, cwd=tmp_path).found is None
    assert not (tmp_path / "bin" / "calls").exists()


def test_a_build_folder_is_the_one_that_a_link_leads_to_now(places: Places, tmp_path: Path) -> None:
    """Who made the link could have it lead to a program of theirs tomorrow."""
    server = make_server(tmp_path / "ours" / "bin")
    working = tmp_path / "working"
    working.mkdir()
    (working / "bin").symlink_to(server.parent)
    assert search(places, {"HOME": str(tmp_path)}, None, cwd=working).found == EngineBinary(server, "build-folder")


@pytest.mark.parametrize("where", ["working", "working/llama.cpp", "working/llama.cpp/build/bin"])
def test_a_build_folder_below_one_that_anybody_can_write_to_is_passed_over(
    places: Places, tmp_path: Path, where: str
) -> None:
    server = make_server(tmp_path / "working" / "llama.cpp" / "build" / "bin")
    env = {"HOME": str(tmp_path)}
    (tmp_path / where).chmod(0o777)
    assert search(places, env, None, cwd=tmp_path / "working").found is None
    (tmp_path / where).chmod(0o1777)  # nobody renames what is another's there, but they may put a library beside it
    found = search(places, env, None, cwd=tmp_path / "working").found
    assert found == (None if tmp_path / where == server.parent else EngineBinary(server, "build-folder"))


def test_a_name_is_an_installed_engine_before_it_is_a_folder_here(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working folder may be anybody's, and a name says nothing of it."""
    shared = tmp_path / "shared"
    monkeypatch.chdir(make_server(shared / "b7-cpu").parents[1])
    shared.chmod(0o777)
    with pytest.raises(EngineNotFound):
        locate(places, {}, "b7-cpu")
    assert locate(places, {}, "./b7-cpu").path == shared / "b7-cpu" / "llama-server"
    server = put_engine(places, "b7-cpu", 7)
    assert locate(places, {}, "b7-cpu") == EngineBinary(server, "option")
