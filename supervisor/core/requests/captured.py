"""What is kept of a request whose prompt and answer are captured: whose they are, without secrets, media and long ends.

Nothing is captured unless the configuration names its model or its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from supervisor.core.doors.ollama_joined import joined
from supervisor.core.history.records import Finished
from supervisor.core.requests.keys import matches
from supervisor.core.routes import SERVED, UPSTREAM, Route
from supervisor.core.stream.outgoing import OutgoingRequest
from supervisor.core.text.foreignjson import NotJson, parse, written
from supervisor.core.text.secrets import HIDDEN, is_likely_secret, without_credentials
from supervisor.errors import SupervisorError

FILES: Final = "files"
MEDIA: Final = "media"
TEXTS: Final = "texts"
END: Final = "end"
"""What may be left out of a request or an answer: a form's files, media, the ends of long texts, the end of it all."""

_EVENTS: Final = "text/event-stream"
_LINES: Final = "application/x-ndjson"
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 512  # characters of a value
_SECRET_HEADERS: Final = re.compile(r"jwt|session|\bsid\b|bearer|signature|assertion|oidc|dpop|pwd|otp", re.IGNORECASE)
_SIGNED: Final = re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]", re.ASCII)  # a JSON web token's head, and more
_DATA: Final = re.compile(r"data:([\w.+-]{1,127}/[\w.+-]{1,127})?[^,]{0,200};base64,", re.ASCII)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{1024,}={0,2}")  # a shorter text may be a word


@dataclass(frozen=True, slots=True)
class CaptureRules:
    """Whose requests are captured, and how much is kept of them.

    Attributes:
        models, keys: patterns of ids of models and of names of keys, `*` stands for any text; either will do.
        max_bytes, max_records: of all that is kept. max_record_bytes: of one request, and of one answer.
    """

    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    max_bytes: int = 64 << 20
    max_records: int = 1000
    max_record_bytes: int = 256 << 10

    @property
    def on(self) -> bool:
        """True if anything is captured."""
        return bool(self.models or self.keys)

    def wants(self, model: str, key: str | None) -> bool:
        """Return whether a request is captured; key: its key's name."""
        by_key = key is not None and _one_of(self.keys, key)
        return by_key or _one_of(self.models, model)


@dataclass(frozen=True, slots=True)
class Heard:
    """A request and its answer, as they went over the wire.

    Attributes:
        asked: JSON; of a form its fields. left_out: of it, before anything was looked at.
        answer: the beginning, where it was `cut`. content_type: of the answer.
    """

    record: Finished
    headers: Sequence[tuple[bytes, bytes]]
    asked: bytes
    left_out: tuple[str, ...]
    answer: bytes
    cut: bool
    content_type: str


@dataclass(frozen=True, slots=True)
class Captured:
    """What is kept of one.

    Attributes:
        asked, answer: JSON, or where something is left out perhaps the beginning of it; empty: there was none.
        asked_left_out, answer_left_out: FILES, MEDIA, TEXTS, END.
    """

    record: Finished
    headers: Mapping[str, str]
    asked: str
    asked_left_out: tuple[str, ...]
    answer: str
    answer_left_out: tuple[str, ...]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        texts = (self.asked, self.answer, *self.headers, *self.headers.values())
        return sum(len(text.encode("utf-8", "replace")) for text in texts)


def captured(heard: Heard, most: int) -> Captured:
    """Return what is kept of a request, of it and of its answer `most` bytes each. Takes milliseconds for each MiB."""
    asked, of_asked = _kept(heard.asked, most)
    answer = heard.answer
    if _EVENTS in heard.content_type:
        answer = folded(heard.record.path, answer)
    elif _LINES in heard.content_type:
        answer = joined(answer)
    shown, of_answer = _kept(answer, most)
    cut = (END,) if heard.cut and END not in of_answer else ()
    return Captured(
        heard.record, redacted(heard.headers), asked, (*heard.left_out, *of_asked), shown, (*of_answer, *cut)
    )


def route_asked(path: str) -> Route | None:
    """Return the row of the path that was asked, by a record's `path`; None where it is in no row."""
    return SERVED.get(path.removeprefix(f"{UPSTREAM}MODEL"))


def redacted(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers as they may be kept: no secret, none of them long, and not very many."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name = raw[:_LONGEST_HEADER].decode("latin-1")
        if len(found) < _MOST_HEADERS:
            text = without_credentials(value.decode("latin-1"))[:_LONGEST_HEADER]
            found[name] = HIDDEN if _is_secret(name, text) else text
    return found


def _is_secret(name: str, value: str) -> bool:
    """Return whether a header may be a secret, by its name or by a signed token in it, as proxies in front add them."""
    return is_likely_secret(name) or _SECRET_HEADERS.search(name) is not None or _SIGNED.search(value) is not None


def folded(path: str, events: bytes) -> bytes:
    """Return the one object of a stream, as far as it went; the stream as it is where none can be made of it."""
    route = route_asked(path)
    fold = None if route is None else OutgoingRequest(kind=route.kind).new_fold()
    if fold is None:
        return events
    try:
        fold.feed(events)
        whole = fold.so_far()
    except SupervisorError:
        return events
    return written({**whole, "error": fold.error} if isinstance(whole, dict) and fold.error is not None else whole)


def without_media(value: object) -> tuple[object, bool]:
    """Return a value of JSON with a note in the place of each medium, and whether there was one."""
    found = False

    def plain(one: Any) -> Any:
        nonlocal found
        if isinstance(one, str):
            kind = _medium(one)
            found = found or kind is not None
            return one if kind is None else f"[{kind}, {len(one)} characters left out]"
        if isinstance(one, list):  # a comprehension would take twice the depth
            return list(map(plain, one))
        return dict(zip(one, map(plain, one.values()), strict=True)) if isinstance(one, dict) else one

    return plain(value), found


def _medium(text: str) -> str | None:
    """Return the kind of a medium that stands in a text; None where it is a text."""
    if (data := _DATA.match(text)) is not None:
        return data[1] or "a medium"
    return None if _BASE64.match(text) is None else "a medium"


def _kept(said: bytes, most: int) -> tuple[str, tuple[str, ...]]:
    """Return what is kept of a body, and what is left out of it."""
    left_out: tuple[str, ...] = ()
    try:
        plain, media = without_media(parse(said))
    except NotJson:
        media = False
    if media:
        said, left_out = written(plain), (MEDIA,)
    if len(said) > most:
        said, left_out = said[:most], (*left_out, END)
    return said.decode("utf-8", "ignore" if END in left_out else "replace"), left_out


def _one_of(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)
