"""Where requests name media, which addresses may be reached, and what stands there afterwards."""

from __future__ import annotations

import json
import tracemalloc
from ipaddress import ip_address
from typing import Any

import pytest

from supervisor.core.requests.media import (
    FetchRules,
    Taking,
    address_of,
    check_scheme,
    ends_with_a_medium,
    has_no_places,
    is_address,
    may_be_reached,
    may_name_media,
    media_type,
    networks,
    places,
    put_in,
)
from supervisor.errors import MediaUrlRefused

URL = "https://pictures.example/a.png"
DATA = "data:image/png;base64,AAAA"

CHAT_PART = {"type": "image_url", "image_url": {"url": URL}}
FORMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "chat": ({"messages": [{"content": [CHAT_PART]}]}, "messages.0.content.0.image_url.url", "image"),
    "chat, short": (
        {"messages": [{"content": [{"type": "image_url", "image_url": URL}]}]},
        "messages.0.content.0.image_url",
        "image",
    ),
    "audio": (
        {"messages": [{"content": [{"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}}]}]},
        "messages.0.content.0.input_audio.data",
        "audio",
    ),
    "audio by url": (
        {"messages": [{"content": [{"type": "input_audio", "input_audio": {"url": URL}}]}]},
        "messages.0.content.0.input_audio.url",
        "audio",
    ),
    "video": (
        {"messages": [{"content": [{"type": "video_url", "video_url": {"url": URL}}]}]},
        "messages.0.content.0.video_url.url",
        "video",
    ),
    "input video": (
        {"messages": [{"content": [{"type": "input_video", "input_video": {"data": URL}}]}]},
        "messages.0.content.0.input_video.data",
        "video",
    ),
    "responses": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]},
        "input.0.content.0.image_url",
        "image",
    ),
    "responses, a tool's output": (
        {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": URL}]}]},
        "input.0.output.0.image_url",
        "image",
    ),
    "an object in the place of a list": (
        {"input": [{"role": "user", "content": {"x": {"type": "input_image", "image_url": URL}}}]},
        "input.0.content.x.image_url",
        "image",
    ),
    "messages": (
        {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": URL}}]}]},
        "messages.0.content.0.source",
        "image",
    ),
    "messages, a tool's result": (
        {
            "messages": [
                {
                    "content": [
                        {"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": URL}}]}
                    ]
                }
            ]
        },
        "messages.0.content.0.content.0.source",
        "image",
    ),
    "embeddings": ({"input": [{"content": [CHAT_PART]}]}, "input.0.content.0.image_url.url", "image"),
    "embeddings, the engine's form": (
        {"content": [{"content": [CHAT_PART]}]},
        "content.0.content.0.image_url.url",
        "image",
    ),
    "decisions": (
        {"state": {"messages": [{"content": [CHAT_PART]}]}},
        "state.messages.0.content.0.image_url.url",
        "image",
    ),
    "decisions, beside": ({"state": 1, "images": [URL]}, "images.0", "image"),
    "decisions, one": ({"state": 1, "images": URL}, "images", "image"),
    "decisions, an object in the place of a list": ({"state": 1, "images": {"x": [URL]}}, "images.x.0", "image"),
}


DISGUISES: tuple[dict[str, Any], ...] = (
    {"type": "image_url", "image_url": DATA},
    {"type": "image_url", "image_url": {"url": DATA}},
    {"type": "input_image", "image_url": DATA},
    {"type": "image", "source": {"type": "url", "url": DATA}},
    {"type": "input_audio", "input_audio": {"data": DATA}},
)


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("form", [name for name in FORMS if name != "decisions, beside"])
def test_a_message_that_looks_like_a_part_hides_none_of_its_parts(form: str, disguise: dict[str, Any]) -> None:
    fields, path, _ = FORMS[form]

    def disguised(value: Any) -> Any:
        if isinstance(value, list):
            return [disguised(one) for one in value]
        if isinstance(value, dict):
            inner = {key: disguised(one) for key, one in value.items()}
            return {**disguise, **inner} if {"content", "output", "messages"} & inner.keys() else inner
        return value

    found = {place.shown for place in places({key: disguised(value) for key, value in fields.items()})}
    assert path in found


def test_nothing_is_looked_for_in_what_will_be_replaced() -> None:
    inner = {"type": "image", "source": {"type": "url", "url": URL}}
    outer = {"type": "image", "source": {"type": "url", "url": URL, "x": inner}}
    (found,) = places({"input": {"x": outer}})
    assert found.shown == "input.x.source"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_seen_and_filled(form: str) -> None:
    fields, path, kind = FORMS[form]
    (found,) = places(fields)
    assert (found.shown, found.kind, found.text) == (path, kind, URL)
    before = json.dumps(fields)
    filled = put_in(fields, found.path, found.filled(DATA))
    assert json.dumps(fields) == before
    if found.source:
        expected = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        assert json.loads(json.dumps(filled)) == json.loads(
            before.replace(json.dumps({"type": "url", "url": URL}), json.dumps(expected))
        )
    else:
        assert json.dumps(filled) == before.replace(URL, DATA)


ENDINGS: tuple[tuple[dict[str, Any], bool], ...] = (
    ({"input": "a"}, False),
    ({"input": ["a", [1, 2], {"content": "a"}, {"content": [5, {}]}]}, False),
    ({"input": {"content": [CHAT_PART, {"type": "text", "text": "a"}]}}, False),
    ({"input": {"content": [CHAT_PART, {"type": "text", "text": ""}]}}, True),
    ({"input": ["a", {"content": [CHAT_PART]}], "content": "a"}, True),
    ({"content": [{"content": [{"type": "text", "text": "a"}, CHAT_PART]}]}, True),
    ({"input": "a", "content": [{"content": [CHAT_PART]}]}, False),
    ({"input": [{"content": [{"type": []}]}], "content": "a"}, False),
)


@pytest.mark.parametrize(("fields", "ends"), ENDINGS)
def test_a_content_ends_with_a_medium_that_has_no_text_behind_it(fields: dict[str, Any], ends: bool) -> None:
    assert ends_with_a_medium(fields) is ends


def test_what_an_unread_request_says_of_media_is_noticed_in_every_spelling() -> None:
    for fields, *_ in FORMS.values():
        plain = json.dumps(fields)
        assert may_name_media(plain.encode())
        assert not has_no_places(plain.encode())
        for letter in "imaguv_":  # any one of which may be an escape
            assert may_name_media(plain.replace(letter, f"\\u{ord(letter):04x}").encode())
            assert may_name_media(plain.replace(letter, f"\\u{ord(letter):04X}").encode())
            assert not has_no_places(plain.replace(letter, f"\\u{ord(letter):04x}").encode())
    assert has_no_places(b'{"messages": [{"role": "user", "content": "see http://a"}]}')
    padded = b" " * ((1 << 16) - 4) + json.dumps(FORMS["chat"][0]).encode()
    assert may_name_media(padded)
    assert may_name_media(memoryview(padded))


@pytest.mark.parametrize(
    "text",
    [b'{"input": [[1, 2], [3]]}', b'{"messages": [{"content": "\\u003ca picture\\u003e \\u001b \\u00e4"}]}', b""],
)
def test_other_requests_name_none(text: bytes) -> None:
    assert not may_name_media(text)


def test_a_text_that_is_an_address_is_a_text() -> None:
    texts = {"prompt": URL, "input": [URL], "content": URL, "system": URL, "query": URL, "documents": [URL]}
    fields = {**texts, "messages": [{"role": "user", "content": URL}]}
    assert list(places(fields)) == list(places(fields, others=True)) == []


def test_arguments_and_tools_are_none_of_ours() -> None:
    fields = {
        "messages": [
            {"content": [{"type": "tool_use", "name": "f", "input": {"a": CHAT_PART}}]},
            {"content": URL, "tool_calls": [{"function": {"arguments": json.dumps(CHAT_PART)}}]},
        ],
        "tools": [{"parameters": {"default": CHAT_PART}}],
    }
    assert list(places(fields)) == []


OTHERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"messages": [{"content": [{"image_url": {"url": URL}}]}]}, "messages.0.content.0.image_url.url"),
    (
        {"messages": [{"content": [{"type": "audio_url", "audio_url": {"url": URL}}]}]},
        "messages.0.content.0.audio_url.url",
    ),
    ({"messages": [{"content": [{"type": "image", "image": URL}]}]}, "messages.0.content.0.image"),
    ({"data_1": {"content": [{"type": "image_url", "image_url": URL}]}}, "data_1.content.0.image_url"),
    ({"extra": [[{"x": {"input_audio": {"data": URL}}}]]}, "extra.0.0.x.input_audio.data"),
    ({"prompt": "a cat", "image": URL}, "image"),
    ({"images": [{"image_url": URL}]}, "images.0.image_url"),
    ({"images": [URL]}, "images.0"),
    ({"images": URL}, "images"),
    ({"messages": [{"role": "user", "content": "look", "images": [URL]}]}, "messages.0.images.0"),
)


@pytest.mark.parametrize(("fields", "path"), OTHERS)
def test_other_programs_take_media_from_more_places(fields: dict[str, Any], path: str) -> None:
    assert [place.shown for place in places(fields, others=True)] == [path]
    assert not has_no_places(json.dumps(fields).encode())
    assert may_name_media(json.dumps(fields).encode(), others=True)


@pytest.mark.parametrize("form", FORMS)
def test_they_take_them_from_the_same_places_too(form: str) -> None:
    fields, path, kind = FORMS[form]
    assert [(place.shown, place.kind) for place in places(fields, others=True)] == [(path, kind)]


def test_arguments_and_tools_are_none_of_theirs() -> None:
    fields = {
        "messages": [{"content": [{"type": "tool_use", "name": "f", "input": {"image": URL}}]}],
        "tools": [{"parameters": {"default": {"image": URL}}}],
    }
    assert list(places(fields, others=True)) == []


@pytest.mark.parametrize(
    "text", ["s3://a/b", "\x01http://a", f"{' ' * 80}http://a", "x http://a", "HTTP://a", "data://a"]
)
def test_whatever_names_a_scheme_is_an_address_for_them(text: str) -> None:
    assert Taking(others=True).fetches(text) is not text.startswith("data:")
    assert Taking(others=True).fetches(DATA) is Taking(others=True).fetches("AAAA") is False
    assert may_name_media(json.dumps({"audio": text}).encode(), others=True) is not text.startswith(("s3", "data:"))


@pytest.mark.parametrize("others", [False, True])
def test_many_values_in_many_levels_take_no_more_memory_than_flat_ones(others: bool) -> None:
    def peak(levels: int) -> int:
        value: Any = [[], 0] * 10_000
        for _ in range(levels):
            value = [value]
        tracemalloc.start()
        try:
            assert list(places({"messages": value}, others=others)) == []
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(400) < 2 * peak(0)


def test_deep_nesting_is_walked_without_recursion() -> None:
    value: Any = CHAT_PART
    for _ in range(5_000):
        value = [value]
    assert [place.text for place in places({"messages": value})] == [URL]


@pytest.mark.parametrize(
    "text", ["http://a", "HTTPS://a", " https://a", "httpd", "file:///etc/passwd", "FILE:/x", "ftp://a"]
)
def test_addresses_are_known_as_an_engine_knows_them(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize("text", [DATA, "AAAA", "", "x http://a"])
def test_other_texts_are_the_media_themselves(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize(
    ("fetching", "url", "fetched"),
    [
        *(("https", "https://a/x", True), ("https", "HTTPS://a/x", True), ("https", "http://a/x", False)),
        *(("all", "https://a/x", True), ("all", "http://a/x", True), ("all", "file:///etc/passwd", False)),
        *(("off", "https://a/x", False), ("off", "file:///x", False), ("https", "file:///x", False)),
        *(("all", "httpd", False), ("all", "ftp://a", False), ("https", "https://a/" + "x" * 4096, False)),
    ],
)
def test_schemes(fetching: Any, url: str, fetched: bool) -> None:
    if fetched:
        return check_scheme(FetchRules(fetching), url, "at")
    with pytest.raises(MediaUrlRefused) as refused:
        check_scheme(FetchRules(fetching), url, "at")
    assert refused.value.param == "at"
    return None


PUBLIC = ("8.8.8.8", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808")
INSIDE = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
    *("168.63.129.16", "192.0.0.192", "100.100.100.200", "192.0.0.9", "192.88.99.1", "::ffff:168.63.129.16", "3fff::1"),
    *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00::1", "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8", "::ffff:0:10.0.0.1", "64:ff9b::7f00:1"),
    *("64:ff9b:1::808:808", "2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert may_be_reached(FetchRules(), address_of(address))


@pytest.mark.parametrize("address", INSIDE)
def test_no_other_may(address: str) -> None:
    assert not may_be_reached(FetchRules(), address_of(address))


def test_a_public_address_of_our_own_network_may_not_be_reached() -> None:
    own = networks(["8.8.8.0/24", "2606:4700::/64"])
    for address in PUBLIC:
        assert not may_be_reached(FetchRules(), address_of(address), own)
    assert may_be_reached(FetchRules(), address_of("8.8.4.4"), own)


def test_a_network_may_be_allowed() -> None:
    rules = FetchRules(allowed=networks(["192.168.7.0/24", "fd00::/8"]))
    for address in ("192.168.7.1", "::ffff:192.168.7.1", "fd00::1"):
        assert may_be_reached(rules, ip_address(address), networks(["192.168.7.0/24"]))
    for address in ("192.168.8.1", "127.0.0.1", "fe80::1"):
        assert not may_be_reached(rules, ip_address(address))


@pytest.mark.parametrize(
    ("told", "kind", "expected"),
    [
        *(("image/png", "image", "image/png"), ("Image/PNG; charset=x", "image", "image/png")),
        *(("", "audio", "audio/wav"), ("application/octet-stream", "video", "video/mp4"), ("", "image", "image/jpeg")),
        *(("text/html", "image", None), ('image/png"', "image", None), ("image/", "image", None)),
        *(("application/json", "image", None), ("image/" + "x" * 65, "image", None)),
    ],
)
def test_what_is_taken_for_a_medium(told: str, kind: str, expected: str | None) -> None:
    assert media_type(told, kind) == expected
