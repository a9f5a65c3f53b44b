"""Parameters of requests: stripped, set, or left alone to the byte."""

from __future__ import annotations

import json

import hypothesis.strategies as st
from hypothesis import given

from supervisor.core.models.filters import RequestFilters

NAMES = st.sampled_from("abcd")
BODIES = st.dictionaries(NAMES, st.integers(0, 3) | st.lists(st.integers(0, 3)))


@given(BODIES, BODIES, st.frozensets(NAMES))
def test_what_is_stripped_goes_and_what_is_set_counts(
    asked: dict[str, object], fixed: dict[str, object], strip: frozenset[str]
) -> None:
    body = json.dumps(asked, indent=1).encode()
    sent, seen = RequestFilters(fixed, strip).apply(body, asked)
    assert json.loads(sent) == seen
    assert seen == {**{name: value for name, value in asked.items() if name not in strip}, **fixed}
    assert sent is body or seen != asked


def test_a_request_that_nothing_is_done_to_keeps_its_bytes() -> None:
    body = b'{ "a" : 1.0e0, "model":"m" }'
    assert RequestFilters({}, frozenset({"seed"})).apply(body, json.loads(body))[0] is body
    assert not RequestFilters()


def test_a_parameter_is_set_and_stripped_under_all_its_names() -> None:
    asked = {"n_predict": 100, "max_completion_tokens": 100, "repetition_penalty": 2, "repeat_penalty": 2, "top_k": 1}
    filters = RequestFilters.of({"max_tokens": 5}, ("repeat_penalty",))
    sent, seen = filters.apply(json.dumps(asked).encode(), asked)
    assert json.loads(sent) == seen == {"max_tokens": 5, "top_k": 1}
