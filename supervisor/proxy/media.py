"""Give the engine media instead of addresses: what a request names is fetched here, within limits, or refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from supervisor.core.models.registry import ModelEntry
from supervisor.core.requests.media import (
    MOST_URL,
    FetchRules,
    Place,
    Taking,
    check_scheme,
    ends_with_a_medium,
    has_no_places,
    may_hold_media,
    may_name_media,
    places,
    put_in,
)
from supervisor.core.requests.pictures import check_pictures, file_reader, media_texts, reader_of
from supervisor.core.routes import makes_vectors
from supervisor.core.text.members import set_fields
from supervisor.engines.client import EngineClient
from supervisor.engines.service import Service
from supervisor.errors import InvalidRequest, MediaUrlRefused, SupervisorError
from supervisor.proxy.bodies import ClientJson, Room
from supervisor.proxy.fetching import Fetch, Resolve, resolved
from supervisor.system.aside import aside

_MOST = 32  # addresses of one request
_AT_ONCE = 4  # of one request
_ALL_AT_ONCE = 32
_ITS_OWN = Taking()
_FOLDER = "--media-path"


class Media:
    """The media of all requests. `rules`: those in force now.

    They are fetched beside the loop that relays: a server that sends chunks of one byte would hold it up for seconds.
    """

    def __init__(self, rules: Callable[[], FetchRules] = FetchRules, resolve: Resolve = resolved) -> None:
        self._rules = rules
        self._resolve = resolve
        self._turns = asyncio.Semaphore(_ALL_AT_ONCE)

    async def put_in(self, body: ClientJson, room: Room, taking: Taking = _ITS_OWN) -> ClientJson:
        """Return the request with its media in the place of their addresses. A form has them in it.

        Raises MediaUrlRefused, MediaNotFetched, MediaTooLarge; InvalidRequest where parts of a request that may name
        media are too large to be looked at; PayloadTooLarge and BodiesFull where the media are too much.
        """
        if not body.is_form:
            body = await self._filled(body, room, taking)
        if not taking.others:
            await body.work(partial(check_pictures, _read_by(body)))
        return body

    async def _filled(self, body: ClientJson, room: Room, taking: Taking) -> ClientJson:
        found = await body.work(partial(_named, body, taking))
        if not found:
            return body
        rules = self._rules()
        for place in found:
            check_scheme(rules, place.text, place.shown)
        fetched = await self._fetched(Fetch(rules, self._resolve), found, room)
        return await body.work(partial(_filled, body, found, fetched))

    async def _fetched(self, fetch: Fetch, found: Sequence[Place], room: Room) -> Mapping[str, bytes]:
        """Return what each address names; one that stands in several places is fetched once."""
        own = asyncio.Semaphore(_AT_ONCE)
        result: dict[str, bytes] = {}

        async def one(place: Place) -> None:
            async with own, self._turns:
                result[place.text] = data = await aside(partial(fetch.data_url, place))
                room.take(len(data))

        try:
            async with asyncio.TaskGroup() as group:
                for place in {place.text: place for place in reversed(found)}.values():
                    group.create_task(one(place))
        except* SupervisorError as failed:
            raise failed.exceptions[0] from None
        return result


def taking_of(entry: ModelEntry, service: Service) -> Taking:
    """Return what the engine of a model takes for media."""
    return Taking(files=_FOLDER in entry.options.extra_args, others=service.plain)


def check_unseen(texts: Sequence[bytes | memoryview], taking: Taking = _ITS_OWN) -> None:
    """Refuse what nobody has read and an engine may find media in. Raise InvalidRequest.

    Another program than llama-server is only kept from addresses: what it makes of media is its own.
    """
    if any(may_name_media(text, others=True) if taking.others else may_hold_media(text) for text in texts):
        raise InvalidRequest(
            "The request seems to hold images, sound or video, and has too many small values, or is not plain JSON, so "
            "that they cannot be checked. Send less at once, or the text alone."
        )


def check_sent(body: ClientJson, text: bytes, fields: Mapping[str, object], taking: Taking = _ITS_OWN) -> None:
    """Refuse what a request became, where it names media by addresses that nobody has fetched. Raise MediaUrlRefused.

    body: before. text, fields: what the engine gets.
    """
    if text is body.text or has_no_places(text):
        return
    for place in _fetched_of(body, fields, taking):
        raise MediaUrlRefused(
            "The address of the medium stands where none is expected. Send the medium itself, as a data: URL.",
            param=place.shown,
        )


async def check_ending(client: EngineClient, path: str, body: ClientJson) -> None:
    """Refuse vectors of a content that ends with a medium, unless the model's tokenizer adds an end behind it.

    llama-server b11434 has no token then of which it could tell the vector, and aborts. Raise InvalidRequest.
    """
    if not makes_vectors(path) or not await body.work(partial(_may_end_with_a_medium, body)):
        return
    without, ended = [await _tokens(client, add_special=special) for special in (False, True)]
    if without[-1:] == ended[-1:]:
        raise InvalidRequest(
            "A content of the request ends with an image, sound or video, of which this model's engine makes no vector "
            "without a text behind it. Add a part with a text."
        )


def _may_end_with_a_medium(body: ClientJson) -> bool:
    return ends_with_a_medium(body.fields) or any(map(may_hold_media, body.unseen()))


async def _tokens(client: EngineClient, *, add_special: bool) -> Sequence[object]:
    asked = json.dumps({"content": "a", "add_special": add_special}).encode()
    async with client.post("/tokenize", asked) as answer:
        tokens = (await answer.json_object()).get("tokens")
        return tokens if isinstance(tokens, list) else ()


def _named(body: ClientJson, taking: Taking) -> Sequence[Place]:
    """Return the places of a request that hold addresses of what is to be fetched."""
    check_unseen(tuple(body.unseen()), taking)
    if has_no_places(body.text):
        return ()
    found = tuple(islice(_fetched_of(body, body.fields, taking), _MOST + 1))
    if len(found) > _MOST:
        raise MediaUrlRefused(f"The request names more than {_MOST} addresses; send fewer at once.")
    return tuple(replace(place, text=_whole(body, place.text)) for place in found)


def _fetched_of(body: ClientJson, fields: Mapping[str, object], taking: Taking) -> Iterator[Place]:
    """Yield the places that hold addresses of what an engine would fetch."""
    return places(fields, lambda text: taking.fetches(_whole(body, text)), others=taking.others)


def _read_by(body: ClientJson) -> Iterator[Callable[[int], bytes]]:
    """Yield what reads each medium of a request from its beginning."""
    yield from map(file_reader, body.files())
    if not (body.is_form or has_no_places(body.text)):
        yield from (reader_of(text, body.whole) for text in media_texts(body.fields))


def _whole(body: ClientJson, text: str) -> str:
    return body.whole(text, MOST_URL + 1)


def _filled(body: ClientJson, found: Sequence[Place], fetched: Mapping[str, bytes]) -> ClientJson:
    """Return the request with marks in the places, which stand for the media."""
    data = {text: one.partition(b",") for text, one in fetched.items()}
    filled, marks = body.with_texts([encoded for _, _, encoded in data.values()])
    urls = {text: f"{kind.decode()},{mark}" for (text, (kind, _, _)), mark in zip(data.items(), marks, strict=True)}
    changed: Mapping[str, object] = filled.fields
    for place in found:
        new = put_in(changed, place.path, place.filled(urls[place.text]))
        assert isinstance(new, Mapping)  # a path into an object leaves one
        changed = new
    tops = {str(place.path[0]): changed[str(place.path[0])] for place in found}
    return replace(filled, fields=changed, text=set_fields(filled.text, tops))
