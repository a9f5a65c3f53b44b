"""What is kept of a captured request: no secret, no medium, no more than is allowed."""

from __future__ import annotations

import base64
import json

import pytest

from supervisor.core.history.records import Finished, Spent
from supervisor.core.requests.captured import Captured, CaptureRules, Heard, captured, redacted, without_media
from supervisor.core.text.foreignjson import MOST_NESTED

CHAT = "/v1/chat/completions"
PICTURE = base64.b64encode(bytes(2000)).decode()


def finished(path: str = CHAT) -> Finished:
    return Finished(1000.0, "req_1", path, "m", None, "agent", True, 200, None, 1.0, 0.1, 0.2, Spent(finish="stop"))


def kept(
    asked: object, answer: bytes = b"", kind: str = "application/json", most: int = 10_000, path: str = CHAT
) -> Captured:
    said = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    return captured(Heard(finished(path), [], said, (), answer, False, kind), most)


@pytest.mark.parametrize(
    ("models", "keys", "model", "key", "wanted"),
    [
        ((), (), "m", None, False),
        ((), (), "m", "bot", False),
        (("m",), (), "m", None, True),
        (("m",), (), "mm", "m", False),
        (("qwen*",), (), "qwen3-4b", "bot", True),
        (("*",), (), "anything", None, True),
        ((), ("bot",), "m", "bot", True),
        ((), ("bot",), "m", None, False),
        ((), ("*",), "m", None, False),
        (("other",), ("b*",), "m", "bot", True),
    ],
)
def test_whose_requests_are_captured(
    models: tuple[str, ...], keys: tuple[str, ...], model: str, key: str | None, wanted: bool
) -> None:
    rules = CaptureRules(models, keys)
    assert rules.wants(model, key) == wanted
    assert rules.on == bool(models or keys)


@pytest.mark.parametrize(
    "name",
    [
        *("authorization", "Authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "set-cookie"),
        *("x-auth-request-email", "x-amz-security-token", "x-goog-api-key", "x-password", "client-secret"),
        *("cf-access-jwt-assertion", "x-amzn-oidc-data", "x-session-id", "dpop", "x-hub-signature-256"),
    ],
)
def test_a_header_that_may_be_a_secret_is_hidden(name: str) -> None:
    assert redacted([(name.encode(), b"sesame"), (b"accept", b"*/*")]) == {name: "(hidden)", "accept": "*/*"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmVk", "(hidden)"),
        (b"a=1; id=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.", "(hidden)"),
        (b"https://user:sesame@example.org/x", "https://***@example.org/x"),
        (b"eyJhbGciOiJIUzI1NiJ9.eyJ" + b"x" * 1000, "(hidden)"),
        (b"eyJust a name. and. another", "eyJust a name. and. another"),
    ],
)
def test_a_secret_in_a_header_of_any_name_is_not_kept(value: bytes, shown: str) -> None:
    assert redacted([(b"x-mine", value)]) == {"x-mine": shown}


def test_headers_are_bounded() -> None:
    found = redacted([(f"x-{number}".encode(), b"v" * 100_000) for number in range(1000)])
    assert len(found) == 64
    assert max(map(len, found.values())) == 512


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"data:image/png;base64,{PICTURE}", f"[image/png, {22 + len(PICTURE)} characters left out]"),
        ("data:audio/wav;codec=x;base64,AAAA", "[audio/wav, 34 characters left out]"),
        ("data:;base64,AAAA", "[a medium, 17 characters left out]"),
        (PICTURE, f"[a medium, {len(PICTURE)} characters left out]"),
        (PICTURE[:1000], PICTURE[:1000]),
        ("a long text of words " * 100, "a long text of words " * 100),
        ("data: is what it says, base64, too", "data: is what it says, base64, too"),
    ],
)
def test_media(text: str, shown: str) -> None:
    where = {"messages": [{"content": [{"image_url": {"url": text}}, 1, None, True]}]}
    plain, found = without_media(where)
    assert plain == {"messages": [{"content": [{"image_url": {"url": shown}}, 1, None, True]}]}
    assert found == (text != shown)


def test_what_has_no_medium_stays_as_it_was_written() -> None:
    written = b'{ "model" : "m",  "temperature": 1.0e0 }'
    one = kept(written)
    assert (one.asked, one.asked_left_out) == (written.decode(), ())


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_what_is_as_deep_as_a_request_may_be_is_kept(begin: str, end: str) -> None:
    """Else a client could ask without being captured."""
    levels = MOST_NESTED - 1
    deep = f'{begin * levels}"{PICTURE}"{end * levels}'
    one = kept(f'{{"x":{deep}}}'.encode())
    assert one.asked_left_out == ("media",)
    assert one.asked.endswith(f'left out]"{end * levels}}}')


def test_what_is_too_long_is_cut_between_characters() -> None:
    one = kept({"text": "é" * 10_000}, json.dumps({"said": "ü" * 10_000}, ensure_ascii=False).encode(), most=101)
    assert (one.asked_left_out, one.answer_left_out) == (("end",), ("end",))
    assert len(one.asked.encode()) <= 101
    assert one.answer == '{"said": "' + "ü" * 45
    assert one.size == len(one.asked.encode()) + len(one.answer.encode()) <= 202


def test_a_medium_is_left_out_before_anything_is_cut() -> None:
    one = kept({"file": PICTURE, "text": "x"}, most=200)
    assert json.loads(one.asked)["text"] == "x"
    assert one.asked_left_out == ("media",)


EVENTS = b"".join(
    f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}], 'id': 'c1'})}\n\n".encode()
    for text in ("Hel", "lo")
)
ERROR = b'data: {"error": {"code": "engine_lost", "message": "gone"}}\n\n'


def test_a_stream_becomes_one_object_as_far_as_it_went() -> None:
    whole = json.loads(kept({}, EVENTS + b"data: [DONE]\n\n", "text/event-stream; charset=utf-8").answer)
    assert whole["choices"][0]["message"]["content"] == "Hello"
    half = json.loads(kept({}, b": waiting\n\n" + EVENTS[:-5], "text/event-stream").answer)
    assert half["choices"][0]["message"]["content"] == "Hel"
    broken = json.loads(kept({}, EVENTS + ERROR, "text/event-stream").answer)
    assert (broken["choices"][0]["message"]["content"], broken["error"]["code"]) == ("Hello", "engine_lost")


@pytest.mark.parametrize("events", [b"data: no JSON\n\n", b'data: {"choices": 3}\n\n', b"\xff\xfe"])
def test_a_stream_of_which_nothing_can_be_made_stays_what_it_is(events: bytes) -> None:
    one = kept({}, events, "text/event-stream")
    assert one.answer in {events.decode("utf-8", "replace"), '{"object":"chat.completion","choices":[]}'}


@pytest.mark.parametrize("path", ["/v1/messages", "/upstream/MODEL/*"])
def test_a_stream_of_a_path_that_is_not_folded_stays_what_it_is(path: str) -> None:
    assert kept({}, EVENTS, "text/event-stream", path=path).answer == EVENTS.decode()


def test_a_cut_answer_says_so_once() -> None:
    heard = Heard(finished(), [], b"{}", ("texts",), b'{"a": 1', True, "application/json")
    assert captured(heard, 1000).answer_left_out == ("end",)
    assert captured(heard, 3).answer_left_out == ("end",)
    assert captured(heard, 1000).asked_left_out == ("texts",)


def test_an_answer_in_lines_is_kept_as_one_object_without_the_images_of_its_request() -> None:
    lines = b'{"message":{"content":"a"},"done":false}\n{"message":{"content":"b"},"done":true}\n'
    asked = {"model": "m", "messages": [{"role": "user", "content": "look", "images": [PICTURE]}]}
    found = kept(asked, lines, "application/x-ndjson", path="/api/chat")
    assert json.loads(found.answer) == {"message": {"content": "ab"}, "done": True}
    assert PICTURE[:100] not in found.asked
