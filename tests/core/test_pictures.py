"""The size of a picture is read from its beginning, in the forms that llama-server decodes."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.requests.media import has_no_places, may_hold_media
from supervisor.core.requests.pictures import (
    MOST_HEAD,
    MOST_PIXELS,
    check_pictures,
    decoded,
    media_texts,
    pixels,
    reader_of,
)
from supervisor.errors import InvalidRequest, MediaTooLarge
from tests.support.media_server import gif, png

FRAME = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", 300, 500) + b"\x03"
JFIF = b"\xff\xd8\xff\xe0\x00\x10JFIF\0" + b"\0" * 9


def reads(data: bytes) -> Callable[[int], bytes]:
    return lambda size: data[:size]


@pytest.mark.parametrize(
    ("picture", "size"),
    [
        (png(28), 28 * 28),
        (png(7)[:8] + b"\0\0\0\4CgBI" + b"\0" * 8 + png(7)[8:], 49),
        (gif(300, 500), 150_000),
        (b"BM" + b"\0" * 12 + struct.pack("<Iii", 40, 300, -500), 150_000),
        (b"BM" + b"\0" * 12 + struct.pack("<IHH", 12, 300, 500), 150_000),
        (JFIF + FRAME, 150_000),
        (JFIF + b"\xff\xe1\xff\xff" + b"\xff\xc0" * 32_766 + b"\0" + FRAME, 150_000),  # a preview in Exif is none
        (JFIF + b"padding\xff\xff" + FRAME, 150_000),
    ],
)
def test_the_size_of_a_picture(picture: bytes, size: int) -> None:
    assert pixels(reads(picture)) == size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"ID3\4",
        b"\xff\xfb\x90\0",
        b"fLaC\0",
        b"\0\0\0\x20ftypisom",
        b"some text",
        b"GIF89a",
    ],
)
def test_what_is_no_picture_has_no_pixels(data: bytes) -> None:
    assert pixels(reads(data)) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"8BPS\0\1", b"P6 20000 20000 255\n", b"P5", b"#?RADIANCE", b"\x53\x80\xf6\x34", b"\0\0\x0a" + b"\0" * 20,
        png()[:8] + b"\0\0\0\0IDAT", JFIF + b"\xff\xe1\xff\xff" + b"\0" * MOST_HEAD,
    ],
)  # fmt: skip
def test_a_picture_whose_size_cannot_be_told_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="PNG, JPEG, GIF or BMP"):
        check_pictures([reads(data)])


def test_all_pictures_of_a_request_count() -> None:
    half = reads(gif(1 << 13, 1 << 13))
    check_pictures([half, half])
    with pytest.raises(MediaTooLarge, match="134 million pixels, more than 134"):
        check_pictures([half, half, reads(gif(1, 1))])
    assert pixels(half) == MOST_PIXELS // 2


@given(st.binary(max_size=99))
def test_any_bytes_have_a_number_of_pixels_or_none(data: bytes) -> None:
    assert (pixels(reads(data)) or 0) >= 0
    assert decoded(base64.b64encode(data).decode()) == data


@pytest.mark.parametrize(
    ("encoded", "data"), [("", b""), ("R", b""), ("R0lG", b"GIF"), ("R0lG OD", b"GIF"), ("R0lGOD", b"GIF8"), ("=", b"")]
)
def test_base64_is_read_as_far_as_it_goes(encoded: str, data: bytes) -> None:
    assert decoded(encoded) == data


def test_media_are_read_wherever_they_stand() -> None:
    text = base64.b64encode(gif(3, 5)).decode()
    url = f"data:image/gif;base64,{text}"
    for fields in (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": text}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": text}}]}]},
        {"images": [text]},
        {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [text]}},
        {"content": [{"prompt_string": "<__media__>", "multimodal_data": [text]}]},
    ):
        assert [pixels(reader_of(one, lambda found, most: found[:most])) for one in media_texts(fields)] == [15]
        whole = repr(fields).replace("'", '"').encode()
        assert may_hold_media(whole) or b"source" in whole
        assert not has_no_places(whole)
