"""Find the media that a request names by their addresses, and put what they hold in their place.

llama-server itself fetches what an `http…` address names, from wherever its machine can reach. So no engine gets such
an address: the daemon fetches it, by rules (`proxy/fetching.py`), and the engine gets the bytes as a `data:` URL. The
places are those from which b11434 takes media (`handle_media` and its callers in tools/server), in every API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal, TypeAlias

from supervisor.errors import MediaUrlRefused

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Path: TypeAlias = tuple[str | int, ...]
_Way: TypeAlias = (
    "tuple[_Way, str | int] | None"  # a path from its end: the way to what holds the last key; None: empty
)
Fetching = Literal["off", "https", "all"]

MOST_URL: Final = 4096
"""Characters of an address."""

_TOP: Final = ("messages", "input", "prompt", "content", "system", "state", "images", "documents", "query")
_WITHIN: Final = ("content", "output", "messages")
_PARTS: Final[Mapping[str, tuple[str, str]]] = {  # type of a part → key of its medium, what the medium is
    "image_url": ("image_url", "image"),
    "input_image": ("image_url", "image"),
    "input_audio": ("input_audio", "audio"),
    "input_video": ("input_video", "video"),
    "video_url": ("video_url", "video"),
    "audio_url": ("audio_url", "audio"),
}
_OTHERS: Final = (
    *dict.fromkeys(_PARTS.values()),
    *((kind, kind) for kind in ("image", "audio", "video")),
    ("images", "image"),
)
"""Keys under which other programs take media, whatever the type of the part."""

_OF_TOOLS: Final = frozenset({"tools", "tool_choice", "functions", "metadata", "response_format"})
"""Fields in which such keys are no media."""

_KINDS: Final = ("image/", "audio/", "video/")
_UNTOLD: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})

_ESCAPE: Final = rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])"  # of a small letter or a low line
_TELLTALES: Final = (
    re.compile(
        rb'image_url|input_image|input_audio|input_video|video_url|audio_url|multimodal_data|"(?:images?|audio|video)"|'
        + _ESCAPE
    ),
    re.compile(rb'["\n](?:http|file:)|' + _ESCAPE),
)
"""What both stand in every request, JSON or a form, that names media by their addresses, however it is spelled."""

_OTHERS_TELLTALES: Final = (_TELLTALES[0], re.compile(rb"(?i:http|file:|ftp:)|\\u00"))
"""The same for a program that takes more for an address than llama-server does."""

_WORDS: Final = (b"image", b"audio", b"video", b"multimodal", b"\\u00")
"""One of which stands in every such JSON: found faster than the places are looked through."""

_LONGEST_TELLTALE: Final = 16
_SEARCHED: Final = 1 << 16


@dataclass(frozen=True)
class FetchRules:
    """The rules for what clients name.

    Attributes:
        fetching: whether to fetch at all, and by which schemes. allowed: networks besides the public ones.
        most: bytes of one medium. seconds: for one, redirects and all.
    """

    fetching: Fetching = "https"
    allowed: tuple[Network, ...] = ()
    most: int = 16 << 20
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Taking:
    """What an engine takes for a medium, and for its address.

    Attributes:
        files: it has a folder of media; `file://` addresses are left to it, which looks nowhere else.
        others: it is another program than llama-server. Parts count by their keys then, whatever their `type` is and
            wherever they stand, and what names any scheme is an address.
    """

    files: bool = False
    others: bool = False

    def fetches(self, text: str) -> bool:
        """Return whether it would fetch what a text names, and so must not get it."""
        if self.files and text.startswith("file://"):
            return False
        return is_address(text) or (self.others and ":" in text and text[:5].lower() != "data:")


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a request that names a medium.

    Attributes:
        path: of keys and indexes, to the text; in Anthropic's form (`source`), to the object that holds it.
        kind: image, audio or video.
        text: the address, or whatever else the engine will take for the medium.
    """

    path: Path
    kind: str
    text: str
    source: bool = False

    @property
    def shown(self) -> str:
        """The path as text, for errors."""
        return ".".join(map(str, self.path))

    def filled(self, data_url: str) -> object:
        """Return what stands there when the medium is put in its place; `data_url` may be made of marks."""
        if not self.source:
            return data_url
        kind, _, data = data_url.removeprefix("data:").partition(";base64,")
        return {"type": "base64", "media_type": kind, "data": data}


def has_no_places(text: bytes) -> bool:
    """Return True for JSON that has no place for a medium, as its words show; most requests have none."""
    return not any(word in text for word in _WORDS)


def places(
    fields: Mapping[str, object], wanted: Callable[[str], bool] = lambda _: True, *, others: bool = False
) -> Iterator[Place]:
    """Yield every place of a request that may name a medium, where its text is wanted. others: as in `Taking`.

    A path is made only for what is yielded: there may be hundreds of thousands of values, hundreds of levels deep.
    """
    waiting: list[tuple[object, _Way, bool]] = [
        (fields[key], (None, key), key == "images") for key in _TOP if key in fields
    ]
    if others:
        waiting = [(fields, None, False)]
    while waiting:
        value, way, pictures = waiting.pop()
        if isinstance(value, str):
            if pictures and wanted(value):
                yield Place(_path(way), "image", value)
        elif isinstance(value, list):
            kinds = (str, list, dict) if pictures else (list, dict)
            waiting += [(one, (way, number), pictures) for number, one in enumerate(value) if isinstance(one, kinds)]
        elif isinstance(value, dict):
            found = tuple(_of_part(value, others=others))
            for place in found:
                if wanted(place.text):
                    yield replace(place, path=(*_path(way), *place.path))
            replaced = any(place.source for place in found)
            # what looks like a part may be a message, whose `type` no engine reads
            waiting += [
                (one, (way, key), pictures or (others and key == "images"))
                for key, one in _below(value, way, others=others)
                if not (replaced and key == "source")
            ]


def _path(way: _Way) -> Path:
    found = []
    while way is not None:
        way, key = way
        found.append(key)
    return tuple(reversed(found))


def _below(value: Mapping[str, object], way: _Way, *, others: bool) -> Iterator[tuple[str, object]]:
    """Yield what to look at in an object; an engine takes one for a list, of its values, where a list is expected."""
    every = others or way is None or isinstance(way[1], str)
    passed = _OF_TOOLS if way is None else ("input",) if value.get("type") == "tool_use" else ()
    for key in value if every else (key for key in _WITHIN if key in value):
        if isinstance(value[key], list | dict) and not (others and key in passed):
            yield key, value[key]


def _of_part(part: Mapping[str, object], *, others: bool) -> Iterator[Place]:
    """Yield the places of one object, with their paths from there."""
    kind, source = part.get("type"), part.get("source")
    if kind == "image" and isinstance(source, dict) and source.get("type") == "url":
        url = source.get("url")
        if isinstance(url, str):
            yield Place(("source",), "image", url, source=True)
    if others:
        for key, medium in _OTHERS:
            yield from _named(part.get(key), (key,), medium)
    elif isinstance(kind, str) and kind in _PARTS:
        key, medium = _PARTS[kind]
        yield from _named(part.get(key), (key,), medium)


def _named(value: object, path: Path, kind: str) -> Iterator[Place]:
    if isinstance(value, str):
        yield Place(path, kind, value)
    elif isinstance(value, dict):
        for key in ("url", "data"):
            if isinstance(value.get(key), str):
                yield Place((*path, key), kind, value[key])


def ends_with_a_medium(fields: Mapping[str, object]) -> bool:
    """Return whether one of the contents of which a request wants vectors has no text behind its last medium."""
    asked = fields.get("input", fields.get("content"))
    entries = asked if isinstance(asked, list) else [asked]
    contents = (entry.get("content") for entry in entries if isinstance(entry, dict))
    return any(isinstance(content, list) and _last_is_medium(content) for content in contents)


def _last_is_medium(content: list[object]) -> bool:
    for part in reversed(content):
        if isinstance(part, dict):
            kind = part.get("type")
            if isinstance(kind, str) and kind in _PARTS:
                return True
            if isinstance(part.get("text"), str) and part["text"]:
                return False
    return False


def may_hold_media(text: bytes | memoryview) -> bool:
    """Return whether a request that nobody has read may hold media, in whatever form; False: it does not."""
    return _is_in(_TELLTALES[0], text)


def may_name_media(text: bytes | memoryview, *, others: bool = False) -> bool:
    """Return whether a request that nobody has read may name media by their addresses; False: it does not.

    It is searched in pieces, as a search keeps all other threads waiting. others: as in `Taking`.
    """
    return all(_is_in(one, text) for one in (_OTHERS_TELLTALES if others else _TELLTALES))


def _is_in(telltale: re.Pattern[bytes], text: bytes | memoryview) -> bool:
    starts = range(0, len(text), _SEARCHED)
    return any(telltale.search(text, start, start + _SEARCHED + _LONGEST_TELLTALE) for start in starts)


def is_address(text: str) -> bool:
    """Return whether an engine, or a reader that is less strict, would take a text for an address."""
    return text[:64].lstrip().lower().startswith(("http", "file:", "ftp:"))


def check_scheme(rules: FetchRules, url: str, where: str) -> None:
    """Refuse an address that is not fetched, whoever it leads to. Raise MediaUrlRefused."""
    scheme = url.partition(":")[0].lower()
    if rules.fetching == "off":
        told = "Addresses of media are not fetched here (server.fetch_urls). Send the medium itself, as a data: URL."
    elif len(url) > MOST_URL:
        told = f"The address has more than {MOST_URL:,} characters. Send the medium itself, as a data: URL."
    elif scheme == "https" or (scheme == "http" and rules.fetching == "all"):
        return
    elif scheme == "http":
        told = "Media are fetched over https alone (server.fetch_urls). Use https, or send the medium as a data: URL."
    else:
        told = "Media are fetched from https: addresses; anything else is refused. Send the medium as a data: URL."
    raise MediaUrlRefused(told, param=where)


def may_be_reached(rules: FetchRules, address: Address, own: tuple[Network, ...] = ()) -> bool:
    """Return whether a client may have us connect to an address: a public one, or one of the allowed networks.

    Of an address of IPv6 that holds one of IPv4, both count. own: the networks that this machine is in, whose hosts it
    may reach where others cannot, though their addresses are public.
    """
    if _within(address, rules.allowed):
        return True
    if isinstance(address, IPv6Address):
        if address.is_site_local or address in _LOCAL_TRANSLATED:
            return False
        inner = _inner(address)
        if inner is not None and (_within(address, _IS_ITS_INNER) or not may_be_reached(rules, inner, own)):
            return may_be_reached(rules, inner, own)
    is_public = address.is_global and not address.is_multicast and not address.is_reserved
    return is_public and not _within(address, (*own, *_NOT_PUBLIC))


CLOUD_HOSTS: Final = tuple(map(ip_network, ("168.63.129.16", "192.0.0.192", "100.100.100.200")))
"""Of Azure, Oracle and Alibaba: they look like any other address, and tell a virtual machine its secrets."""

_NOT_PUBLIC: Final = (*CLOUD_HOSTS, *map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Those, and networks that Python's releases do not agree on (RFC 6890, 7526, 9637)."""


_IS_ITS_INNER: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""Mapped addresses (RFC 4291), and those that a gateway translates (RFC 6052)."""

_HOLDING: Final = (*_IS_ITS_INNER, IPv6Network("::/96"), IPv6Network("::ffff:0:0:0/96"))
"""Those, compatible ones (RFC 4291), and translated ones of RFC 7915."""

_LOCAL_TRANSLATED: Final = IPv6Network("64:ff9b:1::/48")
"""Translated within a network (RFC 8215)."""


def _within(address: Address, among: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in among)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if _within(address, _HOLDING):
        return IPv4Address(address.packed[-4:])
    teredo = address.teredo
    return address.sixtofour or (None if teredo is None else teredo[1])


def media_type(told: str, kind: str) -> str | None:
    """Return the type for a `data:` URL from a Content-Type; None where that is no medium.

    What servers call bytes is taken for the kind that the request expects.
    """
    name = told.partition(";")[0].strip().lower()
    if name in _UNTOLD:
        return {"image": "image/jpeg", "audio": "audio/wav", "video": "video/mp4"}[kind]
    known = name.startswith(_KINDS) and re.fullmatch(r"[a-z]+/[a-z0-9.+-]{1,64}", name) is not None
    return name if known else None


def put_in(value: object, path: Path, new: object) -> object:
    """Return JSON with another value at a path; the original is left as it is."""
    if not path:
        return new
    if isinstance(value, list):
        changed = list(value)
        changed[int(path[0])] = put_in(value[int(path[0])], path[1:], new)
        return changed
    assert isinstance(value, Mapping)  # the path was found in it
    key = str(path[0])
    return {**value, key: put_in(value[key], path[1:], new)}


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of their texts, such as `192.168.0.0/16`. Raise ValueError."""
    return tuple(ip_network(text) for text in texts)


def address_of(text: str) -> Address:
    """Return the address of its text, without the zone of one of IPv6."""
    return ip_address(text.partition("%")[0])
