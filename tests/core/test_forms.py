"""Forms in pieces: whatever the cut, the same fields and files are found, and a form is made of them again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.requests.forms import MOST_PARTS, MOST_TEXT, Form, FormOutline, FormReader, boundary_of
from supervisor.errors import InvalidRequest, PayloadTooLarge

B = "cut-here"
NEAR = ["\r\n", "--", f"--{B}", f"\r\n-{B}", f"\r\n--{B[:-1]}", "\r", "\r\n-", "\r\n\r\n", "a", "\x00"]


def holds_no_boundary(text: str) -> bool:
    return f"\r\n--{B}" not in f"\r\n{text}\r"


NEARLY = st.lists(st.sampled_from(NEAR), max_size=6).map("".join).filter(holds_no_boundary)


def part(name: str, value: bytes, *more: str) -> bytes:
    """One part; `more`: of its disposition, and further headers."""
    disposition, *headers = more or ("",)
    lines = [f"--{B}", f'Content-Disposition: form-data; name="{name}"{disposition}', *headers, "", ""]
    return "\r\n".join(lines).encode() + value + b"\r\n"


def whole(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{B}--\r\n".encode()


def read(body: bytes, cuts: Iterable[int] = ()) -> Form:
    reader = FormReader(B.encode())
    places = [0, *sorted({cut % (len(body) + 1) for cut in cuts}), len(body)]
    for start, stop in itertools.pairwise(places):
        reader.feed(body[start:stop])
    return reader.finish()


def made(outline: FormOutline, text: bytes) -> bytes:
    pieces = outline.pieces(text)
    assert not isinstance(pieces, bytes)
    return b"".join(pieces)


SOUND = bytes(range(256)) * 3
FORM = whole(
    part("model", b"talker"),
    part("file", SOUND, '; filename="a.wav"', "Content-Type: audio/wav"),
    part("include[]", b"logprobs"),
    part("include[]", "größe".encode()),
    part("empty", b""),
    part("none", b"", '; filename=""'),
)


@given(st.lists(st.integers(0, len(FORM)), max_size=40))
def test_fields_and_files_are_found_wherever_it_is_cut(cuts: list[int]) -> None:
    form = read(FORM, cuts)
    assert form.fields == {"model": "talker", "include[]": ["logprobs", "größe"], "empty": ""}
    sound, none = form.files
    assert FORM[sound.start : sound.stop] == SOUND
    assert sound.head == b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav'
    assert none.start == none.stop


@given(NEARLY, NEARLY, st.lists(st.integers(0, 300), max_size=20))
def test_what_is_nearly_a_boundary_is_content(text: str, content: str, cuts: list[int]) -> None:
    body = whole(part("file", content.encode(), '; filename="f"'), part("prompt", text.encode()))
    form = read(body, cuts)
    assert form.fields == {"prompt": text}
    (file,) = form.files
    assert body[file.start : file.stop] == content.encode()


@pytest.mark.parametrize("after", ["x", " \r\n", "\t\r\n", "\r", "\rx", "-", "-x", "\n"])
@given(cuts=st.lists(st.integers(0, 300), max_size=20))
def test_a_boundary_within_a_part_is_refused_as_the_engine_does(after: str, cuts: list[int]) -> None:
    with pytest.raises(InvalidRequest, match="boundary stands within a part"):
        read(whole(part("file", f"a\r\n--{B}{after}".encode(), '; filename="f"')), cuts)


def test_what_follows_the_form_does_not_count() -> None:
    assert read(FORM + f"\r\n--{B}x and more".encode()).fields["model"] == "talker"


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_nothing_breaks_the_reader(body: bytes, cuts: list[int]) -> None:
    for start in (b"", f"--{B}\r\n".encode(), f'--{B}\r\nContent-Disposition: form-data; name="x"'.encode()):
        with pytest.raises(InvalidRequest):
            read(start + body, cuts)


@pytest.mark.parametrize("field", ["prompt", 'quote"d', "line\r\nbreak", "größe", "\udcff"])
@pytest.mark.parametrize("value", ["", "true", "\r\n--other--\r\n", "\udcfe", ["a", "b"]])
def test_a_form_is_made_of_its_outline_again(field: str, value: str | list[str]) -> None:
    given = Form({field: value}, read(FORM).files)
    outline = FormOutline.of(given, memoryview(FORM), B.encode())
    form = made(outline, outline.text)
    again = read(form)
    named = field.replace('"', "%22").replace("\r\n", "%0D%0A")
    assert again.fields == {named: value}
    assert [form[file.start : file.stop] for file in again.files] == [SOUND, b""]
    assert [file.head for file in again.files] == [file.head for file in given.files]
    assert boundary_of(outline.content_type.encode()) == B.encode()


def test_what_is_set_in_the_outline_stands_in_the_form() -> None:
    outline = FormOutline.of(read(FORM), memoryview(FORM), B.encode())
    fields = {**json.loads(outline.text), "stream": True, "temperature": 0.5, "none": None, "off": False}
    again = read(made(outline, json.dumps(fields).encode()))
    assert again.fields == {
        "model": "talker",
        "include[]": ["logprobs", "größe"],
        "empty": "",
        "stream": "true",
        "temperature": "0.5",
        "off": "false",
    }


@pytest.mark.parametrize(("said", "meant"), [("true", True), ("false", False), ("1", False), ("", False)])
def test_stream_is_read_as_the_engine_reads_it(said: str, meant: bool) -> None:
    outline = FormOutline.of(read(whole(part("stream", said.encode()))), memoryview(b""), B.encode())
    assert json.loads(outline.text) == {"stream": meant}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        FORM[:-10],
        whole(f"--{B}\r\n\r\nnameless\r\n".encode()),
        whole(part("x", b"", '; filename="f"')).replace(b"form-data; name", b"form-data; nome"),
        b"\r\n" * 100,
    ],
)
def test_a_broken_form_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="form is broken"):
        read(body)


def test_parts_and_texts_have_bounds_and_files_have_none() -> None:
    read(whole(*[part("x", b"")] * MOST_PARTS))
    with pytest.raises(PayloadTooLarge, match="parts"):
        read(whole(*[part("x", b"")] * (MOST_PARTS + 1)))
    half = b"x" * (MOST_TEXT // 2)
    read(whole(part("a", half), part("b", half), part("file", half * 4, '; filename="f"')))
    with pytest.raises(PayloadTooLarge, match="filename"):
        read(whole(part("a", half), part("b", half + b"x")))


@pytest.mark.parametrize(
    ("kind", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'Multipart/Form-Data; charset=utf-8; boundary="a b"', b"a b"),
        (b"application/json", None),
        (b"multipart/form-data", None),
        (b"multipart/form-data; boundary=", None),
        (b"multipart/mixed; boundary=abc", None),
        (b"multipart/form-data; boundary=" + b"x" * 201, None),
        (b"multipart/form-data; boundary=x" + b";" * 1000, None),
        (b"", None),
        (b"\xff; boundary=\xff", None),
    ],
)
def test_the_boundary_is_that_of_a_form(kind: bytes, boundary: bytes | None) -> None:
    if boundary is None:
        with pytest.raises(InvalidRequest, match="multipart/form-data"):
            boundary_of(kind)
    else:
        assert boundary_of(kind) == boundary
