"""Tokens counted in the bytes of an answer: as llama-server b11434 sends them, cut anywhere."""

from __future__ import annotations

import json

import pytest

from supervisor.core.stream.meter import Meter, SoFar, TailMeter

TIMINGS = {"cache_n": 4, "prompt_n": 21, "prompt_ms": 1.5, "predicted_n": 8, "predicted_per_second": 100.0}
USAGE = {"completion_tokens": 8, "prompt_tokens": 25, "total_tokens": 33, "prompt_tokens_details": {"cached_tokens": 4}}


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def delta(text: str, **more: object) -> bytes:
    return event(choices=[{"finish_reason": None, "index": 0, "delta": {"content": text}}], created=1, **more)


def progress(processed: int) -> bytes:
    return event(choices=[], prompt_progress={"total": 25, "cache": 4, "processed": processed, "time_ms": 3})


def final(**more: object) -> bytes:
    return event(choices=[{"finish_reason": "stop", "index": 0, "delta": {}}], **more)


DONE = b"data: [DONE]\n\n"
CHAT = progress(4) + progress(25) + delta("Hi") + delta(" there") + final(timings=TIMINGS) + DONE


def counted(*pieces: bytes, by: type[Meter | TailMeter] = Meter) -> tuple[int, int]:
    meter = by()
    for piece in pieces:
        meter.hear(piece)
    return meter.tokens()


BOTH = pytest.mark.parametrize("by", [Meter, TailMeter])


@BOTH
def test_a_streamed_chat_counts_its_timings(by: type[Meter | TailMeter]) -> None:
    assert counted(CHAT, by=by) == (25, 8)
    assert counted(*(piece + b"\n\n" for piece in CHAT.split(b"\n\n")[:-1]), by=by) == (25, 8)
    assert counted(CHAT[:500], CHAT[500:-20], CHAT[-20:], by=by) == (25, 8)


@BOTH
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_spaces_and_line_ends_of_other_engines_hide_no_tokens(by: type[Meter | TailMeter], line_end: str) -> None:
    choice = {"finish_reason": None, "index": 0, "delta": {"content": "x"}}
    events = [*({"choices": [choice]} for _ in range(20)), {"choices": [], "usage": USAGE}]
    text = "".join(f"data: {json.dumps(one)}{line_end * 2}" for one in events) + f"data: [DONE]{line_end * 2}"
    for size in (1, 50, len(text)):
        pieces = [text[at : at + size].encode() for at in range(0, len(text), size)]
        if by is Meter or size > 1:
            assert counted(*pieces, by=by) == (25, 8), size
    assert counted(json.dumps({"choices": [], "usage": USAGE}).encode()) == (25, 8)


@BOTH
def test_timings_that_tell_no_tokens_hide_none(by: type[Meter | TailMeter]) -> None:
    last = final(timings={"prompt_ms": 3, "total_s": 1}, usage=USAGE)
    assert counted(delta("a"), last, DONE, by=by) == (25, 8)


def test_figures_that_nothing_can_hold_are_none_of_tokens() -> None:
    """Python reads no number of 5,000 digits, and a database holds none of 20."""
    for digits in (20, 5000):
        whole = f'{{"usage":{{"prompt_tokens":{"9" * digits},"completion_tokens":8}}}}'.encode()
        assert counted(whole) == (10**15 - 1, 8)


def test_what_a_model_says_hides_no_tokens() -> None:
    said = {"finish_reason": "stop", "message": {"content": "x.delta"}}
    whole = json.dumps({"choices": [said], "timings": TIMINGS}, separators=(",", ":"))
    assert counted(whole.encode()) == (25, 8)


def test_it_does_not_matter_how_it_is_cut() -> None:
    for size in (1, 7, 64, 300):
        assert counted(*(CHAT[at : at + size] for at in range(0, len(CHAT), size))) == (25, 8), size


def test_a_long_stream_of_one_choice_counts_by_its_end() -> None:
    told = final(timings={**TIMINGS, "predicted_n": 500})
    assert counted(progress(25), *[delta("word")] * 500, told, DONE, by=TailMeter) == (25, 500)
    with_each = [delta("word", timings={**TIMINGS, "predicted_n": n}) for n in range(500)]
    assert counted(progress(25), *with_each, told, DONE, by=TailMeter) == (25, 500)
    usage = event(choices=[], usage=USAGE)
    assert counted(progress(25), *[delta("word")] * 500, final(), usage, DONE, by=TailMeter) == (25, 8)


def test_a_long_stream_that_is_left_counts_by_its_length() -> None:
    assert counted(progress(25), *[delta("word")] * 500, by=TailMeter) == (25, 500)
    assert counted(progress(25), *[delta("word") * 5] * 100, by=TailMeter) == (25, 500)
    cut = delta("word")
    pieces = [cut[:100], *[cut[100:] + cut[:100]] * 500]
    prompt, completion = counted(progress(25), *pieces, by=TailMeter)
    assert prompt == 25
    assert completion == pytest.approx(500, abs=2)


def test_a_stream_of_an_api_that_tells_the_prompt_at_its_beginning_counts_both_ends() -> None:
    begins = b"event: message_start\n" + event(message={"usage": {"input_tokens": 25, "output_tokens": 0}})
    ends = b"event: message_delta\n" + event(delta={}, usage={"output_tokens": 500})
    goes_on = b"event: content_block_delta\n" + event(delta={"text": "word"})
    assert counted(begins, *[goes_on] * 500, ends, by=TailMeter) == (25, 500)


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (delta("Hi") + final() + event(choices=[], usage=USAGE, timings=TIMINGS) + DONE, (25, 8)),
        (event(content="", stop=True, tokens_predicted=8, timings=TIMINGS), (25, 8)),
        (event(choices=[{"finish_reason": "length", "text": ""}], usage=USAGE, timings=TIMINGS) + DONE, (25, 8)),
        (json.dumps({"usage": {"prompt_tokens": 6, "total_tokens": 6}, "data": [0.5] * 9}).encode(), (6, 0)),
        (
            b"event: message_start\n"
            + event(message={"usage": {"cache_read_input_tokens": 4, "input_tokens": 21, "output_tokens": 0}})
            + b"event: message_delta\n"
            + event(delta={}, usage={"output_tokens": 8}),
            (25, 8),
        ),
        (
            b"event: response.completed\n"
            + event(response={"usage": {"input_tokens": 25, "output_tokens": 8}}, timings=TIMINGS),
            (25, 8),
        ),
        (final(__verbose={"timings": TIMINGS}, timings=TIMINGS), (25, 8)),
        (b'{"tokens":[1,2,3]}', (0, 0)),
        (b"", (0, 0)),
    ],
    ids=["chat with usage", "raw", "completion", "vectors", "messages", "responses", "verbose", "tokenize", "nothing"],
)
def test_each_form_of_answer(answer: bytes, tokens: tuple[int, int]) -> None:
    answer = answer.replace(b'": ', b'":').replace(b", ", b",")
    assert counted(answer) == tokens


def test_several_choices_count_together() -> None:
    other = {**TIMINGS, "predicted_n": 5}
    assert counted(delta("a"), final(timings=TIMINGS), delta("b"), final(timings=other), DONE) == (50, 13)


@BOTH
def test_timings_with_every_token_count_once(by: type[Meter | TailMeter]) -> None:
    told = [delta(str(n), timings={**TIMINGS, "predicted_n": n}) for n in range(1, 8)]
    assert counted(*told, final(timings=TIMINGS), DONE, by=by) == (25, 8)


@BOTH
def test_what_a_model_writes_is_no_count(by: type[Meter | TailMeter]) -> None:
    text = '"timings":{"predicted_n":1000000} "usage":{"completion_tokens":7}'
    assert counted(delta(text), final(timings=TIMINGS), DONE, by=by) == (25, 8)


@BOTH
def test_an_answer_that_its_client_leaves_counts_what_was_read_and_each_event_after_that(
    by: type[Meter | TailMeter],
) -> None:
    assert counted(by=by) == (0, 0)
    assert counted(progress(4), progress(20), by=by) == (20, 0)
    assert counted(progress(4), progress(25), delta("a"), delta("b") + delta("c"), by=by) == (25, 3)
    assert counted(progress(4) + progress(25) + delta("a"), delta("b")[:10], by=by) == (25, 1)
    assert counted(b": keep-alive\n\n", progress(25), delta("a"), by=by) == (25, 1)


def test_usage_at_the_beginning_of_a_large_answer_is_found() -> None:
    body = b'{"usage":{"prompt_tokens":6,"total_tokens":6},"data":[' + b"0.123456789," * 50_000 + b"1]}"
    assert counted(*(body[at : at + 65_536] for at in range(0, len(body), 65_536))) == (6, 0)
    assert counted(body[:20], body[20:]) == (6, 0)


def test_the_held_beginning_of_an_event_has_a_bound() -> None:
    meter = Meter()
    for _ in range(64):
        meter.hear(b"x" * 65_536)
    meter.hear(b'"timings":{"prompt_n":1,"cache_n":0,"predicted_n":2}}\n\n')
    assert meter.tokens() == (1, 2)
    assert len(meter._held) <= 65_536


@BOTH
def test_what_has_come_is_known_while_the_answer_goes_on(by: type[Meter | TailMeter]) -> None:
    meter = by()
    assert meter.so_far() == (0, 0)
    meter.hear(progress(4))
    assert meter.so_far() == (4, 0)
    meter.hear(progress(25))
    for number in range(1, 101):
        meter.hear(delta("word"))
        if number in {1, 7, 50, 100}:
            assert meter.so_far() == (25, number), "events of one length are counted exactly"
            assert meter.so_far() == (25, number), "asking changes nothing"


def test_events_that_were_let_go_are_taken_to_be_as_long_as_the_last_ones() -> None:
    meter = TailMeter()
    for number in range(1000):
        meter.hear(delta("x" * (number % 7)))
        if number % 40 == 0:
            meter.so_far()
    assert meter.so_far()[1] == pytest.approx(1000, rel=0.02)


def test_what_has_come_says_nothing_of_a_speed_before_the_second_token() -> None:
    assert SoFar(25, 0, 0.0).tokens_per_second == SoFar(25, 1, 3.0).tokens_per_second == 0.0
    assert SoFar(25, 31, 3.0).tokens_per_second == 10.0
