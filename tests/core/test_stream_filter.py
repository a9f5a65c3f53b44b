from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.stream.apis import ANTHROPIC, OPENAI, RAW, RESPONSES, Api
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.stream.sse import SseDecoder
from supervisor.errors import EngineStreamInvalid

DONE = b"data: [DONE]\n\n"
PING = b":\n\n"


def event(chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def delta(index: int = 0, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": index, "finish_reason": None, "delta": fields}], "id": "chatcmpl-1"}


ROLE = delta(role="assistant", content=None)
PROGRESS = event(ROLE | {"prompt_progress": {"total": 9, "cache": 0, "processed": 4, "time_ms": 1}})
WORD = event(delta(content="word"))
FINISH = event({"choices": [{"index": 0, "finish_reason": "stop", "delta": {}}]})
QUOTED = event(delta(content='{"prompt_progress": 1}'))
NAMED = event(delta(content="prompt_progress"))
PLAIN = [event(ROLE), WORD, PING, QUOTED, NAMED]
ERROR = event({"error": {"code": 500, "message": "no", "type": "server_error"}})


def relay_in_pieces(relay: StreamFilter, stream: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(cuts), len(stream)]
    return b"".join(relay.feed(stream[a:b]) for a, b in pairwise(edges))


RAW_PIECE = event({"index": 0, "content": "a", "stop": False})
CUT_OFF = {"message": "gone", "type": "server_error", "code": "engine_lost"}


@pytest.mark.parametrize("last", [{"index": 0, "content": "", "stop": True}, {"content": ""}])
def test_the_last_event_of_a_raw_stream_says_so_or_lacks_it(last: dict[str, object]) -> None:
    relay = StreamFilter(drop_progress=True, api=RAW)
    assert relay.feed(RAW_PIECE + PING + event(last)) == RAW_PIECE + PING + event(last)
    assert relay.done
    assert relay.ending(CUT_OFF) == b""


def test_a_raw_stream_that_breaks_off_ends_with_the_error_alone() -> None:
    relay = StreamFilter(drop_progress=True, api=RAW)
    relay.feed(RAW_PIECE + event({"index": 0, "content": '"stop":true', "stop": False}))
    assert not relay.done
    assert relay.ending(CUT_OFF) == b"data: " + json.dumps({"error": CUT_OFF}).encode() + b"\n\n"
    relay.feed(ERROR)
    assert (relay.done, relay.failed, relay.ending(CUT_OFF)) == (False, True, b"")


@pytest.mark.parametrize("drop", [True, False])
def test_without_progress_it_is_the_identity(drop: bool) -> None:
    stream = b"".join([*PLAIN, FINISH, DONE])
    relay = StreamFilter(drop_progress=drop)
    assert relay.feed(stream) == stream
    assert relay.done
    assert not relay.failed


def test_progress_is_dropped_where_it_was_not_asked_for() -> None:
    stream = b"".join([PROGRESS, PING, PROGRESS, *PLAIN, PROGRESS, FINISH, DONE])
    assert StreamFilter(drop_progress=True).feed(stream) == b"".join([PING, *PLAIN, FINISH, DONE])
    assert StreamFilter(drop_progress=False).feed(stream) == stream


def test_text_completions_likewise() -> None:
    choice = {"text": "", "index": 0, "logprobs": None, "finish_reason": None}
    progress = event({"choices": [choice], "prompt_progress": {"total": 1}})
    token = event({"choices": [choice | {"text": "prompt_progress"}]})
    assert StreamFilter(drop_progress=True).feed(progress + token + DONE) == token + DONE


def test_a_message_begun_by_the_client_keeps_its_beginning_and_one_role() -> None:
    progress = {"prompt_progress": {"total": 9}}
    begun = delta(content="Begün ")
    stream = [event(ROLE), event(begun | progress), PROGRESS, event(ROLE), WORD, event(ROLE), DONE]
    relay = StreamFilter(drop_progress=True)
    relayed = b"".join(map(relay.feed, stream))
    assert [json.loads(e.data) for e in SseDecoder().feed(relayed.removesuffix(DONE))] == [
        ROLE,
        begun,
        json.loads(WORD[6:]),
        ROLE,
    ]


def test_second_roles_are_dropped_per_choice() -> None:
    begun = delta(content="Begun ") | {"prompt_progress": {}}
    other = event(delta(index=1, role="assistant", content=None))
    relay = StreamFilter(drop_progress=True)
    assert relay.feed(event(begun) + other + event(ROLE) + WORD) == event(delta(content="Begun ")) + other + WORD


def test_only_whole_events_pass() -> None:
    relay = StreamFilter(drop_progress=True)
    assert relay.feed(WORD + b"data: {") == WORD
    assert relay.partial == b"data: {"
    assert relay.feed(b"}\n") == b""
    assert relay.feed(b"\ndata") == b"data: {}\n\n"
    assert relay.partial == b"data"


@given(st.lists(st.sampled_from([PROGRESS, *PLAIN, FINISH, DONE, ERROR]), max_size=12), st.data(), st.booleans())
def test_any_chunking_gives_the_same_bytes(events: list[bytes], data: st.DataObject, drop: bool) -> None:
    stream = b"".join(events)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    whole, pieces = StreamFilter(drop_progress=drop), StreamFilter(drop_progress=drop)
    assert relay_in_pieces(pieces, stream, cuts) == whole.feed(stream)
    assert (pieces.started, pieces.done, pieces.failed) == (whole.started, whole.done, whole.failed)
    assert pieces.partial == whole.partial == b""


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_arbitrary_bytes_pass_up_to_the_last_blank_line(stream: bytes, cuts: list[int]) -> None:
    relay = StreamFilter(drop_progress=True)
    cuts = [cut for cut in cuts if cut <= len(stream)]
    assert relay_in_pieces(relay, stream, cuts) + relay.partial == stream


@given(st.integers(0, 400))
def test_cut_off_anywhere_it_ends_in_whole_events(size: int) -> None:
    stream = b"".join([PROGRESS, *PLAIN, FINISH, DONE])[:size]
    relay = StreamFilter(drop_progress=True)
    sent = relay.feed(stream) + relay.ending({"message": "gone", "type": "server_error", "code": "engine_lost"})
    events = SseDecoder().feed(sent)
    assert sent.endswith(DONE)
    assert events[-1].data == "[DONE]"
    assert relay.done or json.loads(events[-2].data)["error"]["code"] == "engine_lost"


def test_endings() -> None:
    error = {"message": "gone", "type": "server_error", "code": "engine_lost", "param": None}
    assert OPENAI.stream_error(error) == b"data: " + json.dumps({"error": error}).encode() + b"\n\n" + DONE

    def ending_after(*events: bytes) -> bytes:
        relay = StreamFilter(drop_progress=True)
        for part in events:
            relay.feed(part)
        return relay.ending(error)

    assert ending_after() == OPENAI.stream_error(error)
    assert ending_after(WORD) == OPENAI.stream_error(error)
    assert ending_after(WORD, FINISH, DONE) == b""
    assert ending_after(WORD, DONE, PING) == b""
    assert ending_after(WORD + ERROR) == DONE
    assert ending_after(WORD, b'error: {"message":"no"}\n\n') == OPENAI.stream_error(error)
    assert ending_after(event(delta(content='"error"'))) == OPENAI.stream_error(error)


BROKEN = "decode() failed: vk::Queue::submit: ErrorDeviceLost"


def test_an_error_has_a_code_of_ours() -> None:
    (said,) = SseDecoder().feed(StreamFilter(drop_progress=False).feed(ERROR))
    assert json.loads(said.data)["error"] == {
        "code": "engine_error",
        "message": "no",
        "type": "server_error",
        "param": None,
    }


@pytest.mark.parametrize(
    ("api", "failed"),
    [
        (OPENAI, event({"error": {"code": 500, "message": BROKEN, "type": "server_error"}})),
        (RESPONSES, event({"error": {"code": 500, "message": BROKEN, "type": "server_error"}})),
        (ANTHROPIC, b"event: error\n" + event({"code": 500, "message": BROKEN, "type": "server_error"})),
    ],
)
def test_the_error_of_a_failed_device_is_not_let_through(api: Api, failed: bytes) -> None:
    relay = StreamFilter(drop_progress=False, api=api)
    assert relay.feed(PING + failed) == PING
    assert (relay.withheld, relay.started, relay.done, relay.failed) == (failed, False, False, False)
    assert relay.ending({"message": "gone", "code": "device_lost"})


def test_another_error_of_messages_stays_as_it_is() -> None:
    failed = b"event: error\n" + event({"code": 500, "message": "no", "type": "server_error"})
    assert StreamFilter(drop_progress=False, api=ANTHROPIC).feed(failed) == failed


def test_started_means_an_event_and_not_a_ping() -> None:
    relay = StreamFilter(drop_progress=True)
    assert (relay.feed(PING), relay.started) == (PING, False)
    assert (relay.feed(PROGRESS), relay.started) == (b"", False)
    assert (relay.feed(PING + WORD), relay.started) == (PING + WORD, True)


def test_an_endless_event_is_an_error() -> None:
    relay = StreamFilter(drop_progress=True, max_event_bytes=100)
    for _ in range(10):
        assert relay.feed(b"0123456789") == b""
    with pytest.raises(EngineStreamInvalid, match="longer than 100 bytes"):
        relay.feed(b"0")


def test_streams_of_other_apis_end_in_their_own_way() -> None:
    error = {"message": "gone", "type": "server_error", "code": "engine_lost", "param": None}
    for api, last in ((ANTHROPIC, b"message_stop"), (RESPONSES, b"response.completed")):
        broken, whole = (StreamFilter(drop_progress=False, api=api) for _ in range(2))
        broken.feed(b'event: ping\ndata: {"type":"ping"}\n\n')
        assert not broken.done
        ending = broken.ending(error)
        assert ending.startswith(b"event: error\ndata: ")
        assert json.loads(ending.split(b"data: ")[1])["type"] == "error"
        whole.feed(b"event: " + last + b"\ndata: {}\n\n")
        assert whole.done
        assert whole.ending(error) == b""


def dated(created: int, **fields: object) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": fields}], "created": created, "id": "chatcmpl-1"}
    return event(chunk)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 400), max_size=5))
def test_the_chunks_of_one_answer_share_the_first_one_s_time(later: list[int], cuts: list[int]) -> None:
    times = [100 + sum(later[: at + 1]) for at in range(len(later))]
    quoting = '{"created":1, "created":'
    stream = b"".join([*(dated(time, content=quoting) for time in times), DONE])
    relay = StreamFilter(drop_progress=True)
    relayed = relay_in_pieces(relay, stream, [cut % len(stream) for cut in cuts])
    assert relayed == b"".join([*(dated(times[0], content=quoting) for _ in times), DONE])
    own = StreamFilter(drop_progress=True, one_created=False)
    assert relay_in_pieces(own, stream, [cut % len(stream) for cut in cuts]) == stream


def test_of_responses_one_event_of_progress_is_left_without_it() -> None:
    def named(kind: str, **data: object) -> bytes:
        return b"event: " + kind.encode() + b"\n" + event({"type": kind, **data})

    created, begun = (
        named("response.created", response={"id": "r"}),
        named("response.in_progress", response={"id": "r"}),
    )
    progress = named("response.in_progress", response={"id": "r"}, prompt_progress={"total": 3})
    quoting = named("response.output_text.delta", delta='"prompt_progress"', item_id="prompt_progress")
    carrying = named("response.output_text.delta", delta="Begun", prompt_progress={"total": 3})
    stripped = named("response.output_text.delta", delta="Begun")
    for arrived, left in (
        ([created, progress, progress, quoting], [created, begun, quoting]),
        ([created, begun, carrying, progress, quoting], [created, begun, stripped, quoting]),
        ([created, begun, quoting], [created, begun, quoting]),
    ):
        for cuts in ([], [7, 90, 200]):
            relay = StreamFilter(drop_progress=True, api=RESPONSES)
            stream = b"".join(arrived)
            assert relay_in_pieces(relay, stream, [cut for cut in cuts if cut < len(stream)]) == b"".join(left)


def test_the_code_of_an_error_that_is_let_through_is_kept() -> None:
    relay = StreamFilter(drop_progress=True)
    relay.feed(event(ROLE) + WORD)
    assert relay.code == ""
    said = relay.feed(event({"error": {"code": 400, "message": "no", "type": "invalid_request_error"}}))
    assert json.loads(said.removeprefix(b"data: "))["error"]["code"] == relay.code == "invalid_request"
