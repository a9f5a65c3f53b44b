"""What holds of every configuration: it comes back as it was written; a fault has its line and column."""

from __future__ import annotations

import copy
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from supervisor.config.document import NotADocument, read_document, to_yaml
from supervisor.config.expand import MOST_CHARACTERS, expand
from supervisor.config.faults import ConfigFault
from supervisor.config.load import find_config, load_settings
from supervisor.config.settings import Settings
from supervisor.config.write import as_text
from supervisor.errors import ConfigError
from tests.config.strategies import JSON, TEXT, configurations, escape

FEW = settings(max_examples=25, deadline=None)


def loaded(text: str | bytes, env: dict[str, str] | None = None) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "supervisor.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_settings(path, {"HOME": "/h", **(env or {})})


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_any_data_comes_back_from_yaml(data: dict[str, Any]) -> None:
    document = read_document(to_yaml(data))
    assert document.data == data
    assert expand(escape(data), {}) == (data, []) or "macros" in data


@FEW
@given(configurations())
def test_any_valid_configuration_comes_back_as_it_was_written(data: dict[str, Any]) -> None:
    first = loaded(to_yaml(escape(data)))
    written = first.model_dump(mode="json", exclude_unset=True)
    again = loaded(to_yaml(escape(written)))
    assert again == first
    assert again.model_dump(exclude_unset=True) == first.model_dump(exclude_unset=True)


def paths(data: Any, loc: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield loc
    if isinstance(data, dict):
        for key, value in data.items():
            yield from paths(value, (*loc, key))


@FEW
@given(data=configurations(), draw=st.data())
def test_an_unknown_key_is_found_where_it_stands(data: dict[str, Any], draw: st.DataObject) -> None:
    free = {
        "env",
        "set",
        "sampling",
        "chat_template_kwargs",
        "memory",
        "reserve_mib",
        "engine_reserve_mib",
        "limit_mib",
        "models",
        "groups",
    }
    places = [
        loc
        for loc in paths(data)
        if isinstance(at(data, loc), dict)
        and not free.intersection(loc[-1:])
        and not free.intersection(loc[1 if loc[:1] == ("defaults",) else 2 :])
        and not {"reserve_mib", "engine_reserve_mib", "limit_mib"}.intersection(loc)
    ]
    place = draw.draw(st.sampled_from(places))
    broken = copy.deepcopy(data)
    at(broken, place)["priorty"] = 1
    text = to_yaml(escape(broken))
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    faults = [fault for fault in caught.value.faults if isinstance(fault, ConfigFault)]
    unknown = [fault for fault in faults if fault.key == ".".join(map(str, (*place, "priorty")))]
    assert unknown
    assert unknown[0].line is not None
    assert unknown[0].column is not None
    assert text.splitlines()[unknown[0].line - 1][unknown[0].column - 1 :].startswith("priorty:")
    of_a_model = place == ("defaults",) or (len(place) == 2 and place[0] == "models")
    assert ("did you mean priority?" in unknown[0].message) == of_a_model


def at(data: Any, loc: tuple[str | int, ...]) -> Any:
    for part in loc:
        data = data[part]
    return data


@FEW
@given(data=configurations(), draw=st.data())
def test_whatever_is_wrong_has_a_line_and_a_column(data: dict[str, Any], draw: st.DataObject) -> None:
    """Values of the wrong kind anywhere, and texts cut off anywhere."""
    broken = copy.deepcopy(data)
    loc = draw.draw(st.sampled_from([loc for loc in paths(broken) if loc]))
    at(broken, loc[:-1])[loc[-1]] = draw.draw(JSON)
    text = to_yaml(broken)
    cut = draw.draw(st.integers(0, len(text)))
    for one in (text, text[:cut]):
        error = refusal(one)
        lines = one.splitlines() or [""]
        for fault in error.faults if error else ():
            assert isinstance(fault, ConfigFault)
            assert fault.line is not None
            assert fault.column is not None
            assert 1 <= fault.line <= len(lines) + 1
            assert fault.column >= 1
            assert error is not None
            assert f"supervisor.yaml:{fault.line}:{fault.column}: " in error.message


def refusal(content: str | bytes) -> ConfigError | None:
    """None: it is valid. An error without faults fails the test."""
    try:
        loaded(content)
    except ConfigError as error:
        if not error.faults:
            raise
        return error
    return None


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_but_a_configuration_or_a_fault(content: bytes) -> None:
    error = refusal(content)
    assert error is None or error.faults


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("a: 1\na: 2", (2, 1), "twice"),
        ("a: &x [*x]", (1, 4), "contains itself"),
        ("a: !!python/name:os.system x", (1, 4), "means nothing here"),
        ("? [1]\n: 2", (1, 3), "a key must be text"),
        ("a: {<<: 5}", (1, 9), "takes a mapping"),
        ("[" * 3000, (1, 1), "nested too deeply"),
        ("a: " + "9" * 5000, (1, 4), "no number"),
        ("a: \x07", (1, 4), "not valid YAML"),
        ("- x", (1, 1), "a mapping at its top level"),
        ("a:\n\t- x", (2, 1), "not valid YAML"),
    ],
)
def test_texts_that_are_no_documents(text: str, place: tuple[int, int], why: str) -> None:
    with pytest.raises(NotADocument, match=why) as caught:
        read_document(text)
    assert caught.value.place == place


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "{a: on, b: true, c: 12:30, d: 0x1f, e: 1e3, f: .inf, g: 2026-01-01, h: ~, i: 010, 5: x, j: 0o10, k: '1'}"
    assert read_document(text).data == {
        "a": "on", "b": True, "c": "12:30", "d": 31, "e": 1000.0, "f": float("inf"), "g": "2026-01-01",
        "h": None, "i": 10, "5": "x", "j": 8, "k": "1",
    }  # fmt: skip


def test_anchors_and_merges_keep_the_places_of_what_counts() -> None:
    document = read_document("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: {<<: [{x: 5}, *a]}")
    assert document.data["b"] == {"x": 1, "y": 3}
    assert document.data["c"] == {"x": 5, "y": 2}
    assert document.place(("b", "y")) == (4, 6)
    assert document.place(("b", "y"), key=True) == (4, 3)
    assert document.place(("b", "nothing", 0)) == (3, 3)


def test_anchors_cannot_make_a_small_file_huge() -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(NotADocument, match="too large"):
        read_document("\n".join(lines))


def test_overridden_merges_cannot_either() -> None:
    keys = [f"k{n}" for n in range(3000)]
    anchor = "a: &a {" + ", ".join(f"{key}: 1" for key in keys) + "}"
    users = [[f"{name}:", "  <<: *a", *(f"  {key}: 2" for key in keys)] for name in "bc"]
    with pytest.raises(NotADocument, match="too large"):
        read_document("\n".join([anchor, *users[0], *users[1]]))


@pytest.mark.parametrize("width", [2, 10, 500])
def test_macros_cannot_make_a_small_file_huge(width: int) -> None:
    """Eight levels of ten would be 800 MB of text."""
    macros = {"m0": "x" * 8} | {f"m{n}": f"${{m{n - 1}}}" * width for n in range(1, 30)}
    data = {"macros": macros, "a": "${m29}", "b": ["${m29}"] * 1000}
    before = time.process_time()
    found, faults = expand(data, {})
    assert time.process_time() - before < 5
    assert len(str(found)) < 4_000_000
    (fault,) = faults
    assert "more than 1,048,576 characters" in fault.message


def test_neither_can_variables() -> None:
    _, faults = expand({"a": "${env.X}" * 100_000}, {"X": "x" * 100_000})
    assert "more than 1,048,576 characters" in faults[0].message


def test_macros_may_put_in_as_much_as_is_said() -> None:
    macros = {"m": "x" * (MOST_CHARACTERS // 2), "n": "y"}
    assert expand({"macros": macros, "a": "${m}${m}"}, {}) == ({"a": "x" * MOST_CHARACTERS}, [])
    _, faults = expand({"macros": macros, "a": "${m}${m}${n}"}, {})
    assert len(faults) == 1


def test_macros_are_not_nested_endlessly() -> None:
    deep = {f"m{n}": f"${{m{n + 1}}}" for n in range(2000)} | {"m2000": "x"}
    _, faults = expand({"macros": deep, "a": "${m0}"}, {})
    assert "nested more than 32 deep" in faults[0].message


def test_macros_and_variables() -> None:
    data = {
        "macros": {"dir": "${env.HOME}/models", "n": 4, "deep": "${dir}/x"},
        "a": "${deep}-${n}",
        "b": "${n}",
        "c": ["$${n}", "${env.NONE:-5}", "$5"],
    }
    assert expand(data, {"HOME": "/h"}) == ({"a": "/h/models/x-4", "b": 4, "c": ["${n}", "5", "$5"]}, [])


@pytest.mark.parametrize(
    ("data", "loc", "why"),
    [
        ({"a": {"b": ["${nix}"]}}, ("a", "b", 0), "no macro `nix`"),
        ({"a": "${env.NIX}"}, ("a",), "NIX is not set"),
        ({"a": "x ${"}, ("a",), "not closed"),
        ({"macros": {"m": "${m}"}}, ("macros", "m"), "contains itself"),
        ({"macros": {"x": "${y}", "y": "${x}"}}, ("macros", "x"), "contains itself"),
        ({"macros": {"9": 1}}, ("macros", "9"), "a macro's name"),
        ({"macros": {"m": []}}, ("macros", "m"), "a single value"),
        ({"macros": []}, ("macros",), "must be a mapping"),
    ],
)
def test_references_that_lead_nowhere(data: dict[str, Any], loc: tuple[str | int, ...], why: str) -> None:
    _, faults = expand(data, {})
    assert faults[0].loc == loc
    assert why in faults[0].message


def test_variables_in_numbers() -> None:
    text = "macros: {port: '${env.PORT}'}\nserver: {port: '${port}', drain: '${env.D:-2.5}'}"
    server = loaded(text, {"PORT": "90"}).server
    assert (server.port, server.drain) == (90, 2.5)


@given(st.dictionaries(TEXT, TEXT, max_size=3))
def test_imported_texts_keep_only_references_to_variables(data: dict[str, str]) -> None:
    found, faults = expand(read_document(as_text(data, ["a comment"])).data, {"X": "V"})
    assert not faults
    assert found == {key: re.sub(r"(?<!\$)\$\{env\.X\}", "V", value) for key, value in data.items() if key != "macros"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"macros: {{a: 0x{'f' * 6000}}}\nmodels: {{m: {{source: 'x${{a}}'}}}}", "1:13: macros.a: "),
        (f"models: {{m: {{source: demo, filters: {{set: {{a: 0o{'7' * 9000}}}}}}}}}", ".set.a: "),
        ("models: {m: {source: demo, filters: {set: {a: .nan}}}}", ".filters.set: holds a number"),
        ("models: {m: {source: demo, chat_template_kwargs: {a: [.inf]}}}", ".chat_template_kwargs: holds a number"),
        ('models_dir: "a\\0b"', "models_dir: a file name cannot"),
        ('models: {m: {file: "\\0"}}', "models.m.file: a file name cannot"),
    ],
)
def test_values_that_nothing_can_be_done_with(text: str, where: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(text)
    assert where in raised.value.message


def test_the_home_of_nobody_is_a_folder_like_any_other() -> None:
    settings = loaded("models: {m: {file: ~nobody-there/x.gguf}}\nmodels_dir: ~nobody-there/y")
    assert (settings.models["m"].file or "").endswith("/~nobody-there/x.gguf")
    assert (settings.models_dir or "").endswith("/~nobody-there/y")


@pytest.mark.parametrize("name", ["/" + "a" * 300, "a\0b", "~nobody-there/x.yaml"])
def test_a_configuration_that_cannot_be_there(name: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        find_config(name, {}, Path("/"), Path("/"))
