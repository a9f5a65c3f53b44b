"""Which model a request means."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.requests.keys import Key, KeyRules
from supervisor.core.requests.scopes import Scope
from supervisor.errors import InvalidRequest, ModelNotFound
from supervisor.proxy.naming import Naming, split_query

REGISTRY = Registry([ModelEntry(name, Source.FILE, f"/{name}.gguf") for name in ("one", "two", "a b&c")])


def naming(*loaded: str, default: str | None = None) -> Naming:
    return Naming(REGISTRY, lambda: loaded, lambda: default)


def test_the_body_comes_before_the_query_and_the_query_before_the_default() -> None:
    assert naming(default="two").entry("one", b"model=two").id == "one"
    assert naming("two", default="two").entry(None, b"model=one").id == "one"
    assert naming(default="two").entry("", b"model=").id == "two"


def test_without_a_name_the_default_then_what_is_loaded() -> None:
    assert naming("one", default="two").entry(None).id == "two"
    assert naming("one").entry(None).id == "one"
    with pytest.raises(InvalidRequest, match=r"Name a model in `model`.*server\.default_model"):
        naming().entry(None)


def test_a_default_that_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match=r"no 'three', which server\.default_model names"):
        naming("one", default="three").entry(None)


@pytest.mark.parametrize("named", [3, ["one"], True, {}])
def test_a_name_is_a_text(named: object) -> None:
    with pytest.raises(InvalidRequest, match="`model` must be a text"):
        naming("one").entry(named)


def test_a_query_is_read_and_the_rest_passed_on() -> None:
    assert split_query(b"a=1&model=a%20b%26c&b=%2F") == ("a b&c", "a=1&b=%2F")
    assert split_query(b"") == ("", "")
    assert naming().entry(None, b"model=a+b%26c").id == "a b&c"


LIMITED = {
    "none": None,
    "manages": KeyRules("m", frozenset({Scope.MANAGE, Scope.INFER})),
    "infers": KeyRules("i", frozenset({Scope.INFER})),
    "sees some": KeyRules("s", frozenset({Scope.MANAGE, Scope.INFER}), ("o*",)),
}


@pytest.mark.parametrize(
    ("rules", "adds"), [*zip(LIMITED.values(), (True, True, False, False), strict=True)], ids=LIMITED
)
def test_a_model_is_added_for_those_who_may_load_it(rules: KeyRules | None, adds: bool) -> None:
    added: list[str] = []

    async def add(name: str) -> str | None:
        added.append(name)
        return "one" if name == "o/new:Q4_0" else None

    key = None if rules is None else Key(rules, b"", 0.0)
    asked = Naming(REGISTRY, lambda: (), lambda: None, add)
    if adds:
        assert asyncio.run(asked.wanted("o/new:Q4_0", b"", key)).id == "one"
    for name in ("o/other:Q4_0", *([] if adds else ["o/new:Q4_0"])):
        with pytest.raises(ModelNotFound):
            asyncio.run(asked.wanted(name, b"", key))
    assert added == (["o/new:Q4_0", "o/other:Q4_0"] if adds else [])
    assert asyncio.run(asked.wanted("one", b"", key)).id == "one"
