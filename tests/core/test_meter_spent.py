"""What an engine spent on an answer, as a meter reads it in each form of answer; and when the first token is there."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from supervisor.core.history.records import Spent
from supervisor.core.stream.meter import Meter, TailMeter
from tests.core.test_meter import BOTH, CHAT, DONE, delta, event, final, progress

TOLD = {"cache_n": 4, "prompt_n": 21, "prompt_ms": 1.5, "predicted_n": 8, "predicted_ms": 16.25}
USAGE = {"completion_tokens": 8, "prompt_tokens": 25, "prompt_tokens_details": {"cached_tokens": 4}}
SPENT = Spent(25, 4, 8, 1.5, 16.25, "stop")
UNTIMED = replace(SPENT, prompt_ms=None, predicted_ms=None)

BEGINS = b"event: message_start\n" + event(
    message={"usage": {"cache_read_input_tokens": 4, "input_tokens": 21, "output_tokens": 0}}
)
WORD = b"event: content_block_delta\n" + event(type="content_block_delta", delta={"text": "word"})
ENDS = b"event: message_delta\n" + event(delta={"stop_reason": "end_turn"}, usage={"output_tokens": 8})
RESPONSE = {
    "status": "completed",
    "usage": {"input_tokens": 25, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 4}},
}

STREAMS = [
    ([progress(4), progress(25), *[delta("a")] * 8, final(timings=TOLD), DONE], SPENT),
    ([*[delta("a")] * 8, final(), event(choices=[], usage=USAGE), DONE], UNTIMED),
    ([event(choices=[{"finish_reason": "length", "text": ""}], timings=TOLD), DONE], replace(SPENT, finish="length")),
    ([BEGINS, WORD, ENDS], replace(UNTIMED, finish="end_turn")),
    ([BEGINS, *[WORD] * 500, ENDS], replace(UNTIMED, finish="end_turn")),
    ([b"event: response.completed\n" + event(response=RESPONSE)], replace(UNTIMED, finish=None)),
    ([progress(4), progress(25), *[delta("a")] * 5], Spent(25, None, 5)),
    ([progress(4), progress(20)], Spent(20, None, 0)),
    ([BEGINS, *[WORD] * 3], replace(UNTIMED, completion_tokens=0, finish=None)),
    ([], Spent(0, None, 0)),
]
NAMES = ["chat", "usage alone", "completion", "messages", "long messages", "responses", "left", "left early"]


def heard(by: type[Meter | TailMeter], pieces: list[bytes]) -> Spent:
    meter = by()
    for piece in pieces:
        meter.hear(piece)
    return meter.spent()


@BOTH
@pytest.mark.parametrize(("pieces", "spent"), STREAMS, ids=[*NAMES, "left messages", "nothing"])
def test_each_stream(by: type[Meter | TailMeter], pieces: list[bytes], spent: Spent) -> None:
    assert heard(by, pieces) == spent


@BOTH
@pytest.mark.parametrize(("pieces", "spent"), STREAMS[:6], ids=NAMES[:6])
def test_a_stream_in_one_piece(by: type[Meter | TailMeter], pieces: list[bytes], spent: Spent) -> None:
    assert heard(by, [b"".join(pieces)]) == spent


@pytest.mark.parametrize(
    ("body", "spent"),
    [
        (event(choices=[{"finish_reason": "stop", "message": {"content": "a"}}], usage=USAGE, timings=TOLD), SPENT),
        (event(stop_type="limit", content="a", timings=TOLD), replace(SPENT, finish="limit")),
        (event(stop_reason="end_turn", usage={"cache_read_input_tokens": 4, "input_tokens": 21, "output_tokens": 8}),
         replace(UNTIMED, finish="end_turn")),
        (event(**RESPONSE), replace(UNTIMED, finish=None)),
        (event(usage={"prompt_tokens": 6, "total_tokens": 6}, data=[0.5] * 9), Spent(6, None, 0)),
    ],
    ids=["chat", "raw", "messages", "response", "vectors"],
)  # fmt: skip
def test_each_answer_in_one_piece(body: bytes, spent: Spent) -> None:
    assert heard(Meter, [body.removeprefix(b"data: ").rstrip()]) == spent


def test_several_choices_are_summed() -> None:
    other = {**TOLD, "predicted_n": 5, "predicted_ms": 10.0}
    pieces = [delta("a"), final(timings=TOLD), delta("b"), final(timings=other), DONE]
    assert heard(Meter, pieces) == Spent(50, 8, 13, 3.0, 26.25, "stop")


def beginnings(by: type[Meter | TailMeter], pieces: list[bytes]) -> list[int]:
    """The pieces with which the first token came."""
    begun: list[int] = []
    number = 0
    meter = by(lambda: begun.append(number))
    for number, piece in enumerate(pieces):  # noqa: B007 - the callback looks at it
        meter.hear(piece)
    return begun


@BOTH
def test_the_first_token_is_no_progress_and_is_told_once(by: type[Meter | TailMeter]) -> None:
    quiet = [b": keep-alive\n\n", *(progress(n) for n in range(200))]
    assert beginnings(by, quiet) == []
    assert beginnings(by, [*quiet, delta("a"), delta("b"), final(timings=TOLD), DONE]) == [len(quiet)]


@BOTH
def test_progress_and_the_first_token_in_one_piece(by: type[Meter | TailMeter]) -> None:
    assert beginnings(by, [progress(4) + progress(25) + delta("a"), delta("b")]) == [0]


@BOTH
def test_progress_that_is_cut_is_no_token(by: type[Meter | TailMeter]) -> None:
    whole = progress(25) + delta("a")
    at = len(progress(25) + delta("a")) - 1
    for cut in range(1, at + 1):
        assert beginnings(by, [whole[:cut], whole[cut:]]) == [1], cut


@BOTH
def test_nothing_is_told_twice_by_asking_twice(by: type[Meter | TailMeter]) -> None:
    meter = by()
    for start, end in pairwise(range(0, len(CHAT) + 40, 40)):
        meter.hear(CHAT[start:end])
    assert meter.tokens() == meter.tokens() == (25, 8)
    assert meter.spent() == meter.spent()
