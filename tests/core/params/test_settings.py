"""Defaults for requests: which may be set, and what overrides them."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.params.settings import OVERRIDING, RequestSettings, sampling_defaults
from supervisor.errors import InvalidRequest


@pytest.mark.parametrize("name", OVERRIDING["max_tokens"])
def test_any_name_of_a_parameter_overrides_its_default(name: str) -> None:
    settings = RequestSettings({"max_tokens": 100, "top_p": 0.5})
    assert settings.missing({name: 5}) == {"top_p": 0.5}
    assert settings.missing({name: None}) == {"max_tokens": 100, "top_p": 0.5}


def test_names_of_max_tokens() -> None:
    assert set(OVERRIDING["max_tokens"]) == {
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_new_tokens")
    }


def test_defaults_are_kept_under_the_engines_names() -> None:
    given = {"repetition_penalty": 1.1, "max_completion_tokens": 5, "temperature": 0.6, "n_predict": 7}
    assert sampling_defaults(given) == {"repeat_penalty": 1.1, "max_tokens": 7, "temperature": 0.6}


@pytest.mark.parametrize("given", [{"temperature": -1}, {"stream": True}, {"unknown": 1}, {"top_p": None}], ids=str)
def test_what_is_no_default_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        sampling_defaults(given)
    assert refused.value.param in given
