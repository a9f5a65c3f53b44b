"""Ids, aliases and what happens when two models want one name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import MOST_NAMES, ModelEntry, Registry, Source
from supervisor.core.schedule import ModelPolicy
from supervisor.errors import InvalidRequest, ModelIdTaken, ModelNotFound

ONE = ModelEntry("one", Source.FILE, "/models/one.gguf", aliases=("uno", "eins"))
TWO = ModelEntry("two", Source.FILE, "/models/two.gguf")


def test_a_name_that_is_not_there_is_told_with_the_one_that_was_meant() -> None:
    registry = Registry([ModelEntry("demo", Source.DEMO, None, aliases=("builtin",))])
    with pytest.raises(ModelNotFound, match=r"'dmeo'; did you mean demo\? Known models: demo\."):
        registry.find("dmeo")
    with pytest.raises(ModelNotFound, match=r"'xyzzy'\. Known"):
        registry.find("xyzzy")


def test_found_by_id_alias_and_path() -> None:
    registry = Registry((ONE, TWO))
    assert registry.find("one") is registry.find("uno") is registry.by_path("/models/one.gguf") is ONE
    assert registry.by_path("/models/three.gguf") is None
    assert list(registry) == [ONE, TWO]


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(ModelNotFound, match="Known models: one, two"):
        Registry((ONE, TWO)).find("three")


@pytest.mark.parametrize("name", ["one", "uno"])
def test_a_name_belongs_to_one_model(name: str) -> None:
    registry = Registry((ONE,))
    with pytest.raises(ModelIdTaken, match=r"one\.gguf"):
        registry.add(replace(TWO, id=name))
    assert list(registry) == [ONE]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0b", "\x1b[31m"])
def test_a_name_is_printable(name: str) -> None:
    registry = Registry()
    with pytest.raises(InvalidRequest, match="cannot name a model"):
        registry.add(replace(TWO, id=name))
    assert list(registry) == []


def test_the_same_model_may_come_again_with_other_options() -> None:
    registry = Registry((ONE,))
    changed = replace(ONE, options=LaunchOptions(ctx_size=512))
    assert registry.add(changed)
    assert not registry.add(changed)
    assert not registry.add(TWO)
    assert registry.find("eins").options == changed.options


def test_options_of_a_load_lie_over_the_configured_ones_until_they_are_taken_back() -> None:
    registry = Registry((replace(ONE, options=LaunchOptions(ctx_size=1, parallel=2)),))
    assert registry.add(replace(ONE, options=LaunchOptions(ctx_size=9, parallel=2)))
    assert registry.find("uno").given == {"ctx_size": 9}
    assert registry.add(replace(ONE, options=LaunchOptions(ctx_size=9)))
    assert registry.find("uno").given == {"ctx_size": 9, "parallel": None}
    assert registry.find("uno").own_options == LaunchOptions(ctx_size=1, parallel=2)
    registry.set_options("one", None)
    assert registry.find("uno") == replace(ONE, options=LaunchOptions(ctx_size=1, parallel=2))
    registry.set_options("nobody", None)


def test_options_that_are_the_configured_ones_are_not_given() -> None:
    assert ONE.loaded_with(LaunchOptions(ctx_size=9)).loaded_with(ONE.options) == ONE


def test_a_load_changes_options_alone() -> None:
    """What a reload has set meanwhile stays, also where the load was asked for before it."""
    stale = ModelEntry("a", Source.FILE, "/a", LaunchOptions(ctx_size=1))
    registry = Registry((replace(stale, aliases=("x",), policy=ModelPolicy(pinned=True)),))
    assert not registry.add(replace(stale, options=LaunchOptions(ctx_size=9)), keep=True)
    assert registry.find("x").options.ctx_size == 1
    assert registry.add(replace(stale, options=LaunchOptions(ctx_size=9)))
    assert registry.find("x").options.ctx_size == 9
    assert registry.policy_of("a").pinned


def test_a_long_name_that_nobody_knows_is_not_repeated_whole() -> None:
    with pytest.raises(ModelNotFound) as caught:
        Registry([ModelEntry("a", Source.DEMO, None)]).find("x" * 10_000_000)
    assert len(caught.value.message) < 1000


TWO_AS_WRITTEN = ModelEntry("TWO", Source.FILE, "/models/two.gguf", aliases=("two.gguf",))
OF_HUB = ModelEntry("mine", Source.HUB, None, aliases=("one", "two"), hub="o/Repo:Q4_0")


def test_a_model_of_a_hub_is_found_in_any_case_and_exactly_first() -> None:
    registry = Registry((OF_HUB, TWO_AS_WRITTEN))
    registry.add(replace(OF_HUB, aliases=("o/Repo",)))
    assert registry.find("O/REPO") is registry.find("o/repo") is registry.find("MINE") is registry.find("mine")
    assert registry.get("TWO") is TWO_AS_WRITTEN
    assert registry.get("tWo") is registry.find("mine")
    assert registry.get("Two.GGUF") is None, "names of files are as they are written"


def test_another_spelling_is_no_further_name() -> None:
    registry = Registry((OF_HUB,))
    for spelling in ("O/Repo", "o/repo", "O/REPO", "o/Repo"):
        registry.add(replace(OF_HUB, aliases=(spelling,)))
    assert registry.find("mine").aliases == ("one", "two", "O/Repo")


def test_loads_give_a_model_so_many_names_and_the_oldest_are_forgotten() -> None:
    """Also across reloads; what is configured stays."""
    registry, given = Registry((OF_HUB,)), [f"o/r{number}" for number in range(100)]
    for name in given[:60]:
        registry.add(replace(OF_HUB, aliases=(name,)), keep=True)
    registry.become(Registry(registry))
    for name in given[60:]:
        registry.add(replace(OF_HUB, aliases=(name,)))
    kept = tuple(given[-MOST_NAMES:])
    assert registry.find("mine").aliases == ("one", "two", *kept)
    assert [name for name in given if registry.get(name) is not None] == list(kept)
    assert registry.get("O/R0") is None
    registry.forget("mine")
    assert all(registry.get(name) is None for name in (*kept, "O/R99", "two"))


def test_a_model_that_a_load_adds_has_so_many_names_too() -> None:
    registry = Registry()
    for number in range(100):
        registry.add(replace(OF_HUB, aliases=(f"o/r{number}",)))
    assert len(registry.find("mine").aliases) == MOST_NAMES


THREE = ModelEntry("owner/Three:Q4_0", Source.HUB, None, hub="owner/Three:Q4_0")
DEMO = ModelEntry("demo", Source.DEMO, None)
TWIN = ModelEntry("twofold", Source.FILE, "/models/twofold.gguf")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("one", ONE),
        ("ONE", ONE),
        ("Eins", ONE),
        ("u", ONE),
        ("owner/th", THREE),
        ("two", TWO),  # its own name comes before the beginning of a longer one
        ("TWO", TWO),
        ("twof", TWIN),
    ],
)
def test_a_request_may_name_a_model_by_its_beginning_and_in_any_case(name: str, found: ModelEntry) -> None:
    assert Registry((ONE, TWO, THREE, TWIN)).meant(name) == found


def test_a_beginning_of_several_names_says_which() -> None:
    with pytest.raises(ModelNotFound, match=r"'tw' is the beginning of several models: two, twofold\. Name one"):
        Registry((ONE, TWO, TWIN)).meant("tw")


def test_two_beginnings_of_one_model_are_one_model() -> None:
    assert Registry((replace(ONE, aliases=("once", "onwards")),)).meant("on").id == "one"


def test_two_names_that_differ_in_case_are_two_models() -> None:
    other = replace(TWO, id="ONE")
    registry = Registry((ONE, other))
    assert (registry.meant("one"), registry.meant("ONE")) == (ONE, other)
    with pytest.raises(ModelNotFound, match="several models: ONE, one"):
        registry.meant("One")


def test_what_is_no_beginning_is_not_found() -> None:
    with pytest.raises(ModelNotFound, match=r"'ones'; did you mean one\?"):
        Registry((ONE,)).meant("ones")


@pytest.mark.parametrize(
    ("entries", "loaded", "only"),
    [
        ((ONE, DEMO), (), ONE),
        ((ONE, TWO, DEMO), (), None),
        ((ONE, TWO, DEMO), ("two",), TWO),
        ((ONE, TWO, DEMO), ("demo",), DEMO),
        ((ONE, TWO, DEMO), ("one", "two"), None),
        ((ONE, DEMO), ("one", "demo"), None),
        ((DEMO,), (), DEMO),
        ((), (), None),
    ],
)
def test_the_only_model_that_can_be_meant(
    entries: tuple[ModelEntry, ...], loaded: tuple[str, ...], only: ModelEntry | None
) -> None:
    assert Registry(entries).only(loaded) == only
