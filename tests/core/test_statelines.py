"""Lines as build b11434 writes them, and as older, newer or damaged ones might."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.statelines import (
    LoadProgress,
    StateLine,
    context_of,
    load_progress,
    parse_state,
    slot_facts,
    telling_lines,
)

LOADING = b'cmd_child_to_router:state:{"state":"loading","payload":{"stages":["a","b"],"current":"b","value":0.5}}'
READY = b'cmd_child_to_router:state:{"state":"ready","payload":{"id":"x","meta":{"n_ctx":512}}}'

GARBAGE_FILE = """\
0.00.000.880 I srv  llama_server: initializing ...
0.00.002.018 W srv  llama_server: security: no API key is set and CORS allows all origins
0.00.003.591 I srv    load_model: loading model 'garbage.gguf'
0.00.003.702 E gguf_init_from_reader: invalid magic characters: 'abcd', expected 'GGUF'
0.00.003.784 E llama_model_load: error loading model: llama_model_loader: failed to load model from garbage.gguf
0.00.003.798 E llama_model_load_from_file_impl: failed to load model
0.00.003.833 E common_fit_params: encountered an error while trying to fit params to free device memory: failed
0.00.003.851 E gguf_init_from_reader: invalid magic characters: 'abcd', expected 'GGUF'
0.00.003.866 E llama_model_load: error loading model: llama_model_loader: failed to load model from garbage.gguf
0.00.003.901 E srv    load_model: failed to load model, 'garbage.gguf'
0.00.003.912 I srv    operator(): operator(): cleaning up before exit...
0.00.004.211 E srv  llama_server: exiting due to model loading error""".splitlines()


def test_a_state_line_is_its_state_and_payload() -> None:
    assert parse_state(READY) == StateLine("ready", {"id": "x", "meta": {"n_ctx": 512}})
    assert parse_state(b'cmd_child_to_router:state:{"state":"sleeping"}') == StateLine("sleeping", {})


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"0.00.001 I srv: initializing",
        b"cmd_child_to_router:state:",
        b"cmd_child_to_router:state:{",
        b"cmd_child_to_router:state:[]",
        b'cmd_child_to_router:state:{"state":1}',
        b'cmd_child_to_router:state:{"payload":{}}',
        b"cmd_child_to_router:state:\xff",
        b" " + READY,
    ],
)
def test_anything_else_is_no_state_line(line: bytes) -> None:
    assert parse_state(line) is None


@given(st.binary(max_size=200))
def test_no_line_breaks_the_parser(rest: bytes) -> None:
    parse_state(rest)
    parse_state(b"cmd_child_to_router:state:" + rest)


def test_progress_counts_all_stages() -> None:
    line = parse_state(LOADING)
    assert line is not None
    assert load_progress(line.payload) == LoadProgress("b", 0.75)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, LoadProgress("loading", None)),
        ({"current": "mmproj", "value": 0.25}, LoadProgress("mmproj", 0.25)),
        ({"current": "x", "value": 7, "stages": []}, LoadProgress("x", 1.0)),
        ({"current": "x", "value": True, "stages": ["x"]}, LoadProgress("x", None)),
        ({"current": "x", "value": "half", "stages": ["x"]}, LoadProgress("x", None)),
        ({"current": 3, "value": -1.0, "stages": "x"}, LoadProgress("loading", 0.0)),
    ],
)
def test_progress_of_another_build_is_taken_for_what_it_is_worth(
    payload: dict[str, object], expected: LoadProgress
) -> None:
    assert load_progress(payload) == expected


def test_the_context_of_a_ready_engine() -> None:
    assert context_of({"meta": {"n_ctx": 512}}) == 512
    assert context_of({"meta": {"n_ctx": "512"}}) is None
    assert context_of({"meta": None}) is None
    assert context_of({}) is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([{"id": 0, "n_ctx": 512}, {"id": 1, "n_ctx": 512}], (512, 2)),
        ({"total_slots": 3, "default_generation_settings": {"n_ctx": 64, "params": {}}}, (64, 3)),
        ({"total_slots": 3}, None),
        ({"default_generation_settings": {"n_ctx": 64}}, None),
        ([], None),
        ([7], None),
        (None, None),
        ("busy", None),
    ],
)
def test_the_facts_about_slots(answer: object, expected: tuple[int, int] | None) -> None:
    assert slot_facts(answer) == expected


def test_the_exact_errors_are_told_once_and_bare() -> None:
    assert telling_lines(GARBAGE_FILE) == (
        "gguf_init_from_reader: invalid magic characters: 'abcd', expected 'GGUF'",
        "llama_model_load: error loading model: llama_model_loader: failed to load model from garbage.gguf",
    )


def test_general_errors_are_better_than_none() -> None:
    assert telling_lines(GARBAGE_FILE[:3] + GARBAGE_FILE[-1:]) == (
        "srv  llama_server: exiting due to model loading error",
    )


@pytest.mark.parametrize(
    "line",
    [
        "error: invalid argument: --bogus",
        "./llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900 MiB on device 0: cudaMalloc failed: out of memory",
        "/src/ggml.c:123: GGML_ASSERT(ne > 0) failed",
        "terminate called after throwing an instance of 'x'\n  what():  bad",
    ],
)
def test_errors_are_known_by_their_words_where_there_are_no_levels(line: str) -> None:
    assert telling_lines(["starting up", line, "bye"]) == (line,)


def test_a_level_outranks_words() -> None:
    lines = ["0.01 I srv: 0 errors, 0 failed", "0.02 E srv: disk is gone"]
    assert telling_lines(lines) == ("srv: disk is gone",)


def test_without_any_error_the_last_lines_are_told() -> None:
    assert telling_lines([f"0.00.00{n % 10} I step {n}" for n in range(40)])[-2:] == ("step 38", "step 39")
    assert telling_lines(["", "  "]) == ()


@given(st.lists(st.text(max_size=60), max_size=60))
def test_few_lines_are_told_and_none_invented(lines: list[str]) -> None:
    told = telling_lines(lines)
    assert len(told) <= 12
    assert len(set(told)) == len(told)
    assert all(any(line in said for said in lines) for line in told)
