"""Facts of a model as a person reads them."""

from __future__ import annotations

import pytest

from supervisor.core.spec.description import merge_labels


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("llama", "llama"),
        (True, "yes"),
        (False, "no"),
        (1234567, "1 234 567"),
        (1.5, "1.5"),
        ([1, "two"], "1, two"),
        (list(range(13)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (13)"),
        (list(range(12)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"),
        ({"used": 8, "shared": None, "gated": False, "kind": "x"}, "used 8, kind x"),
    ],
)
def test_a_fact_is_a_label_and_a_text(value: object, text: str) -> None:
    assert merge_labels({"n_layer": value}) == [("n layer", text)]
