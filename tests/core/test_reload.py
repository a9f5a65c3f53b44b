"""One configuration in place of another."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import ModelDefaults, ModelEntry, Registry, Source
from supervisor.core.models.reload import Changes, reconcile
from supervisor.core.schedule import ModelPolicy
from supervisor.errors import ModelIdTaken


def entry(
    name: str, path: str = "/p", ctx: int | None = None, *, aliases: tuple[str, ...] = (), pinned: bool = False
) -> ModelEntry:
    return ModelEntry(name, Source.FILE, path, LaunchOptions(ctx_size=ctx), aliases, None, ModelPolicy(pinned=pinned))


A, B, C = entry("a", "/a"), entry("b", "/b"), entry("c", "/c")


def test_models_come_go_change_and_stay() -> None:
    before = Registry((A, B, C))
    after = Registry((entry("a", "/a", 5), entry("b", "/b", pinned=True), entry("d", "/d")))
    found, changes = reconcile(before, after, Registry((A, B, C, entry("mine", "/m"))))
    assert changes == Changes(added=("d",), removed=("c",), relaunched=("a",), adjusted=("b",))
    assert [one.id for one in found] == ["a", "b", "d", "mine"]


def test_options_that_people_gave_stay_until_the_configuration_changes_its_own() -> None:
    theirs = A.loaded_with(LaunchOptions(ctx_size=9))
    kept, changes = reconcile(Registry((A,)), Registry((entry("a", "/a", aliases=("x",)),)), Registry((theirs,)))
    assert kept.find("x").given == {"ctx_size": 9}
    assert changes == Changes(adjusted=("a",))
    taken, changes = reconcile(Registry((A,)), Registry((entry("a", "/a", 5),)), Registry((theirs,)))
    assert taken.find("a") == entry("a", "/a", 5)
    assert changes == Changes(relaunched=("a",))


def test_a_model_that_people_added_has_the_new_defaults_once_it_is_unloaded() -> None:
    mine = entry("mine", "/m", 3).loaded_with(LaunchOptions(ctx_size=3, parallel=2))
    defaults = ModelDefaults(LaunchOptions(ctx_size=7))
    found, changes = reconcile(Registry(), Registry(defaults=defaults), Registry((mine,)))
    assert changes == Changes(adjusted=("mine",))
    assert found.find("mine").options == mine.options
    assert found.find("mine").loaded_with(None).options == defaults.options


def test_how_calls_are_looked_for_needs_no_other_engine() -> None:
    found, changes = reconcile(Registry((A,)), Registry((replace(A, tool_calls="raw"),)), Registry((A,)))
    assert changes == Changes(adjusted=("a",))
    assert found.find("a").tool_calls == "raw"


def test_where_a_model_of_the_hub_was_found_stays() -> None:
    wanted = ModelEntry("h", Source.HUB, None, hub="o/r:Q4")
    found, changes = reconcile(Registry((wanted,)), Registry((wanted,)), Registry((replace(wanted, path="/cache/x"),)))
    assert found.find("h").path == "/cache/x"
    assert changes == Changes()


def test_the_configuration_takes_an_id_that_people_used() -> None:
    _, changes = reconcile(Registry(), Registry((A,)), Registry((entry("a", "/other"),)))
    assert changes == Changes(relaunched=("a",))


def test_a_name_cannot_be_two_models() -> None:
    with pytest.raises(ModelIdTaken):
        reconcile(Registry(), Registry((entry("a", "/a", aliases=("mine",)),)), Registry((entry("mine", "/m"),)))


ENTRIES = st.lists(
    st.builds(entry, st.sampled_from("abcd"), st.sampled_from(["/1", "/2"]), st.sampled_from([None, 1, 2])),
    unique_by=lambda one: one.id,
)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_every_model_is_accounted_for_once(
    before: list[ModelEntry], after: list[ModelEntry], people: list[ModelEntry]
) -> None:
    here = Registry((*before, *(one for one in people if one.id not in {two.id for two in before})))
    found, changes = reconcile(Registry(before), Registry(after), here)
    ids, was = {one.id for one in found}, {one.id for one in here}
    assert ids == (was - set(changes.removed)) | set(changes.added)
    assert {one.id for one in after} <= ids
    assert not set(changes.added) & was
    assert set(changes.relaunched) | set(changes.adjusted) <= ids & was
    for name in ids & was:
        assert (name in changes.relaunched) != found.find(name).same_launch(here.find(name))
    again, nothing = reconcile(Registry(after), Registry(after), found)
    assert nothing == Changes()
    assert list(again) == list(found)
