"""Engines side by side, and which of them is in use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.errors import EngineNotFound, UsageError
from supervisor.llamacpp.store import Chosen, EngineStore, Manifest, manifest_of
from supervisor.system.paths import Places
from tests.llamacpp.fakes import make_server


@pytest.fixture
def store(places: Places) -> EngineStore:
    return EngineStore(places.engines)


def put(store: EngineStore, name: str, build: int = 1) -> str:
    made = store.new_scratch("test") / "engine"
    make_server(made / "bin", build)
    return store.place(made, Manifest(name, build, None, "cpu", "git", "5a", build)).name


def test_an_empty_store(store: EngineStore) -> None:
    assert store.engines() == ()
    assert store.chosen() == Chosen(None, None)


def test_newest_build_first(store: EngineStore) -> None:
    for name, build in (("a", 3), ("b", 9), ("c", 5)):
        put(store, name, build)
    assert [manifest.build for manifest in store.engines()] == [9, 5, 3]


def test_an_engine_never_overwrites_another(store: EngineStore) -> None:
    assert [put(store, "b1-cpu") for _ in range(3)] == ["b1-cpu", "b1-cpu.2", "b1-cpu.3"]
    assert {manifest.name for manifest in store.engines()} == {"b1-cpu", "b1-cpu.2", "b1-cpu.3"}


def test_an_engine_knows_its_manifest(store: EngineStore) -> None:
    put(store, "b4-cpu", 4)
    assert manifest_of(store.binary("b4-cpu")) == Manifest("b4-cpu", 4, None, "cpu", "git", "5a", 4)
    assert manifest_of(make_server(store.root.parent / "elsewhere" / "bin")) is None


def test_choosing_keeps_the_one_before(store: EngineStore) -> None:
    for name in ("a", "b"):
        put(store, name)
        store.choose(name)
    assert store.choose("b") == Chosen("b", "a")
    assert store.choose_previous() == Chosen("a", "b")
    assert store.choose_previous() == store.chosen() == Chosen("b", "a")


def test_there_is_nothing_to_go_back_to(store: EngineStore) -> None:
    store.choose(put(store, "a"))
    with pytest.raises(UsageError, match="no previous engine"):
        store.choose_previous()


def test_an_unknown_engine_cannot_be_chosen_or_removed(store: EngineStore) -> None:
    for change in (store.choose, store.remove):
        with pytest.raises(EngineNotFound, match="engine list"):
            change("nothing")


@pytest.mark.parametrize("name", ["downloads", "../engines", "a/../a"])
def test_only_engines_are_removed(store: EngineStore, name: str) -> None:
    put(store, "a")
    store.downloads.mkdir()
    with pytest.raises(EngineNotFound):
        store.remove(name)
    assert store.downloads.is_dir()


def test_removing_the_one_in_use_brings_the_previous_back(store: EngineStore) -> None:
    for name in ("a", "b"):
        store.choose(put(store, name))
    assert store.remove("b") == Chosen("a", None)
    assert [manifest.name for manifest in store.engines()] == ["a"]
    assert store.remove("a") == store.chosen() == Chosen(None, None)


def test_a_binary_from_elsewhere_can_be_chosen(store: EngineStore, tmp_path: Path) -> None:
    server = make_server(tmp_path / "elsewhere")
    store.choose(str(server))
    assert store.binary(str(store.chosen().current)) == server


def test_a_half_written_choice_is_no_choice(store: EngineStore) -> None:
    store.choose(put(store, "a"))
    (store.root / "chosen.json").write_text(json.dumps({"current": "a"})[:8], encoding="utf-8")
    assert store.chosen() == Chosen(None, None)


def test_leftovers_are_cleared_and_engines_are_not(store: EngineStore) -> None:
    put(store, "a")
    left = store.new_scratch("killed")
    store.clear_scratch()
    assert not left.exists()
    assert [manifest.name for manifest in store.engines()] == ["a"]


def test_of_a_scratch_folder_only_our_own_goes(store: EngineStore) -> None:
    """Somebody may name a folder for engines in which there is one of that name."""
    ours = store.new_scratch("engine")
    (ours / "build").mkdir()
    for name in ("mine", "engine-1", "notes-12-0123abcd.txt"):
        (ours.parent / name).mkdir()
    store.clear_scratch()
    assert sorted(path.name for path in ours.parent.iterdir()) == ["engine-1", "mine", "notes-12-0123abcd.txt"]
