"""The list of what is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.store import Database, LoadedModel, LoadedModels


def test_it_is_kept_in_order_and_across_openings(tmp_path: Path) -> None:
    with Database.open(tmp_path / "state.db") as database:
        loaded = LoadedModels(database)
        loaded.add(LoadedModel("b", "/m/b.gguf", {"ctx_size": 4096, "device": ["CUDA0"]}, 2.0))
        loaded.add(LoadedModel("a", None, {}, 1.0))
        loaded.add(LoadedModel("c", "/m/c.gguf", {}, 3.0))
        loaded.remove("c")
        loaded.remove("never there")
    with Database.open(tmp_path / "state.db") as database:
        found = LoadedModels(database).all()
        assert [model.id for model in found] == ["a", "b"]
        assert found[1].options == {"ctx_size": 4096, "device": ["CUDA0"]}
        LoadedModels(database).add(LoadedModel("a", None, {"parallel": 2}, 4.0))
        assert [model.id for model in LoadedModels(database).all()] == ["b", "a"]


@pytest.mark.parametrize(
    ("options", "aliases"), [("{", "[]"), ("5", "[]"), ("{}", "null"), ("[" * 100_000, "[]"), ("{}", "[" * 100_000)]
)
def test_a_row_that_cannot_be_understood_is_as_good_as_absent(tmp_path: Path, options: str, aliases: str) -> None:
    with Database.open(tmp_path / "state.db") as database:
        LoadedModels(database).add(LoadedModel("good", None, {}, 1.0))
        LoadedModels(database).add(LoadedModel("bad", None, {}, 2.0))
        with database.change() as connection:
            connection.execute("UPDATE loaded SET options = ?, aliases = ? WHERE id = 'bad'", (options, aliases))
        assert [model.id for model in LoadedModels(database).all()] == ["good"]


@pytest.mark.parametrize("column", ["id", "path", "hub", "at", "options", "aliases"])
def test_a_value_of_another_type_is_none(tmp_path: Path, column: str) -> None:
    with Database.open(tmp_path / "state.db") as database:
        LoadedModels(database).add(LoadedModel("bad", None, {}, 2.0))
        with database.change() as connection:
            connection.execute(f"UPDATE loaded SET {column} = x'ff'")
        assert LoadedModels(database).all() == ()
