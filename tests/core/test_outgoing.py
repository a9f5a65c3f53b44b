from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.routes import kind_of
from supervisor.core.stream.outgoing import Kind, OutgoingRequest, outgoing_request, why_not_folded

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
ASKED = {"stream": True, "return_progress": True}


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}])
def test_a_single_answer_is_folded_from_a_stream(stream: dict[str, Any]) -> None:
    assert outgoing_request(kind_of(CHAT), stream) == OutgoingRequest(
        ASKED | {"stream_options": {"include_usage": True}}, kind="chat", drop_progress=False
    )
    assert outgoing_request(kind_of(TEXT), stream) == OutgoingRequest(ASKED, kind="completion", drop_progress=False)


def test_other_stream_options_stay() -> None:
    plan = outgoing_request(kind_of(CHAT), {"stream_options": {"x": 1, "include_usage": False}})
    assert plan.changes["stream_options"] == {"x": 1, "include_usage": True}


@pytest.mark.parametrize("path", [CHAT, TEXT, "/chat/completions"])
def test_a_stream_gets_progress_that_the_client_does_not_see(path: str) -> None:
    plan = OutgoingRequest({"return_progress": True}, drop_progress=True)
    assert outgoing_request(kind_of(path), {"stream": True}) == plan
    assert outgoing_request(kind_of(path), {"stream": True, "return_progress": False}) == plan
    assert plan.new_fold() is None


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_asked_for_progress_is_passed_on(path: str) -> None:
    assert outgoing_request(kind_of(path), {"stream": True, "return_progress": True}) == OutgoingRequest()


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/v1/responses", "responses"), ("/responses", "responses"), ("/completion", "raw"), ("/infill", "raw")],
)
def test_so_are_the_other_paths_that_generate(path: str, kind: str) -> None:
    plan = outgoing_request(kind_of(path), {})
    assert (plan.changes, plan.kind, plan.new_fold() is not None) == (ASKED, kind, True)
    assert outgoing_request(kind_of(path), {"stream": True}) == OutgoingRequest(
        {"return_progress": True}, drop_progress=True
    )


def test_fields_of_a_raw_answer_are_chosen_here() -> None:
    plan = outgoing_request(kind_of("/completion"), {"response_fields": ["content", "a/b"]})
    assert (plan.changes, plan.fields) == (ASKED | {"response_fields": []}, ("content", "a/b"))


def test_what_is_continued_is_asked_for() -> None:
    assert outgoing_request(kind_of(CHAT), {"continue_final_message": "content"}).changes["echo"] is True
    assert "echo" not in outgoing_request(kind_of(CHAT), {"continue_final_message": True, "stream": True}).changes


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank", "/v1/messages/count_tokens", "/tokenize"])
def test_other_paths_are_passed_on(path: str) -> None:
    assert outgoing_request(kind_of(path), {"stream": True}) == OutgoingRequest()


@pytest.mark.parametrize("body", [{"stream": "yes"}, {"stream": 1}, {"return_progress": 0}, {"stream_options": []}])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_what_the_engine_refuses_is_passed_on(path: str, body: dict[str, Any]) -> None:
    assert outgoing_request(kind_of(path), body) == OutgoingRequest()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"logprobs": True}),
        (CHAT, {"n_probs": 3}),
        (CHAT, {"verbose": True}),
        (TEXT, {"logprobs": 1, "stop": ["x"]}),
        (TEXT, {"n_probs": 1, "stop": "x"}),
        (TEXT, {"verbose": True, "return_tokens": True}),
        (TEXT, {"n_indent": 4}),
        ("/v1/responses", {"logprobs": True}),
        ("/v1/responses", {"n": 2}),
        ("/completion", {"return_tokens": True}),
        ("/completion", {"n_probs": 1, "stop": "x"}),
    ],
)
def test_what_cannot_be_folded_is_asked_for_as_it_is(path: str, body: dict[str, Any]) -> None:
    plan = outgoing_request(kind_of(path), body)
    assert plan == OutgoingRequest(reason=plan.reason)
    assert plan.reason
    assert outgoing_request(kind_of(path), body | {"stream": True}).drop_progress


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"logprobs": False, "n": 3, "tools": [], "timings_per_token": True, "return_tokens": True}),
        (TEXT, {"logprobs": 1, "stop": []}),
        (TEXT, {"verbose": True}),
        (TEXT, {"logprobs": 0, "stop": ["x"], "prompt": ["a", "b"], "n": 2}),
    ],
)
def test_what_can_be_folded_is(path: str, body: dict[str, Any]) -> None:
    assert outgoing_request(kind_of(path), body).new_fold() is not None


@pytest.mark.parametrize("path", [TEXT, "/completion"])
@pytest.mark.parametrize("field", ["n_probs", "logprobs"])
def test_very_many_probabilities_are_not_read(path: str, field: str) -> None:
    """An engine gives as many for each token as its vocabulary has tokens."""
    assert outgoing_request(kind_of(path), {field: 20}).kind is not None
    assert outgoing_request(kind_of(path), {field: 200_000}).kind is None


@pytest.mark.parametrize("kind", ["chat", "completion", "responses", "raw"])
def test_an_answer_that_is_not_folded_has_its_reason_in_words(kind: Kind) -> None:
    asked = {"logprobs": True, "n_probs": 1, "stop": ["x"]}
    assert "probabilities" in (why_not_folded(kind, asked) or "")
    assert "indented" in (why_not_folded(kind, {"n_indent": 2}) or "")
    assert why_not_folded(kind, {"n": 1}) is None
