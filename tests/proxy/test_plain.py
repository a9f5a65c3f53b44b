"""Answers that are passed on as they came: where one ends that ends with its connection."""

from __future__ import annotations

import pytest

from supervisor.core.stream.apis import ANTHROPIC, OPENAI, RESPONSES, Api
from supervisor.core.stream.filter import StreamFilter
from supervisor.proxy.plain import AsItIs, UntilLastEvent

WORD = b'data: {"choices": [{"delta": {"content": "[DONE]"}}]}'


def whole(api: Api, text: bytes, size: int) -> bool:
    """Whether a stream, in pieces of a size, is taken for complete; every byte passes."""
    filtered = UntilLastEvent(StreamFilter(drop_progress=False, api=api))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert b"".join(map(filtered.feed, pieces)) == text
    return filtered.done


@pytest.mark.parametrize("size", [1, 2, 3, 7, 300, 100_000])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize(
    ("api", "last"),
    [
        (OPENAI, b"data: [DONE]"),
        (ANTHROPIC, b'event: message_stop\ndata: {"type": "message_stop"}'),
        (RESPONSES, b'event: response.completed\ndata: {"response": "' + b"x" * 5000 + b'"}'),
    ],
)
def test_the_last_event_alone_ends_it(api: Api, last: bytes, end: bytes, size: int) -> None:
    last = last.replace(b"\n", end[: len(end) // 2])
    assert whole(api, WORD + end + last + end, size)
    assert not whole(api, WORD + end + last, size)
    assert not whole(api, WORD + end + WORD + end, size)
    assert not whole(api, WORD + b" " * 1000 + end, size)
    assert not whole(api, b"", size)


def test_one_whose_head_says_where_it_ends_is_whole_then() -> None:
    assert AsItIs(StreamFilter(drop_progress=False)).done
