"""The engine's errors say what a user of the supervisor can do."""

from __future__ import annotations

import time

import pytest

from supervisor.core.engine_output.errors import translate


@pytest.mark.parametrize(
    ("told", "advice"),
    [
        (
            "This server does not support embeddings. Start it with `--embeddings`",
            "This server does not support embeddings. Set `embeddings: on` for this model, or load it with "
            "`supervisor load MODEL --embeddings on`",
        ),
        (
            "This server does not support reranking. Start it with `--reranking`",
            "This server does not support reranking. Set `reranking: true` for this model, or load it with "
            "`supervisor load MODEL --set reranking=true`",
        ),
        (
            "This server does not support metrics endpoint. Start it with `--metrics`",
            "This server does not support metrics endpoint. Add `--metrics` to the model's `extra_args` in the "
            "configuration",
        ),
        (
            "This server does not support image input for decisions. For a model that supports it, start it with "
            "`--mmproj`",
            "This server does not support image input for decisions. Put the model's projector beside its file, or "
            "name it with `mmproj` in the configuration",
        ),
        ("something else. Start again", "something else. Start again"),
    ],
)
def test_an_option_of_the_engine_becomes_a_setting_of_the_model(told: str, advice: str) -> None:
    _, envelope = translate({"type": "not_supported_error", "code": 501, "message": told})
    assert envelope["error"]["message"] == advice
    assert envelope["error"]["code"] == "not_supported_by_engine"


@pytest.mark.parametrize("quoted", ['"a": {"b": 1}, ', "a, ", "Start it with `--", ", start it with `--x` "])
def test_a_long_message_that_quotes_a_client_takes_linear_time(quoted: str) -> None:
    begun = time.process_time()
    translate({"message": quoted * (500_000 // len(quoted))})
    assert time.process_time() - begun < 5  # going back at every comma: hours
