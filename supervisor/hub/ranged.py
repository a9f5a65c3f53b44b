"""Reads the header of a file that is on the hub: by ranges, gone on with after a break, never the whole file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import BinaryIO, cast

import httpx

from supervisor.core.gguf import GgufHeader, bounded, combine_shards, read_header
from supervisor.core.repository import RepoFile, Variant
from supervisor.errors import GgufError, HubError, HubUnreachable
from supervisor.files.header_cache import HeaderCache
from supervisor.hub.api import HubClient
from supervisor.hub.listing import Repository

FIRST_STEP = 1 << 19
LARGEST_STEP = 1 << 23
_EXPIRED = frozenset({401, 403, 404, 410})
_CONTENT = frozenset({httpx.codes.OK, httpx.codes.PARTIAL_CONTENT})


class RangeStream(io.RawIOBase):
    """A file on the hub as a stream that is read forward.

    A range goes as far as `expect` said that reading will go; without such a word it is as long as all before it that
    were guessed, within limits: little is fetched that nobody reads, in few requests. `fetched`: bytes that came over
    the network. `is_nearby`: some came from somebody nearer, as the hub could not be asked.
    """

    def __init__(self, client: HubClient, repository: Repository, file: RepoFile) -> None:
        super().__init__()
        self._client = client
        self._repository = repository
        self._file = file
        self._page = client.url(repository.id, repository.commit, file.path)
        self._url = self._page  # where its content is, once the hub has said so; such an address may expire
        self._etag: str | None = None
        self._data = bytearray()
        self._start = 0  # of what is held
        self._place = 0
        self._guessed = 0  # bytes of ranges that nobody asked for
        self._expected = 0
        self.fetched = 0
        self.is_nearby = False

    def expect(self, end: int) -> None:
        """Prepare to read on up to this place."""
        self._expected = end

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only from the beginning")
        self._place = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            raise io.UnsupportedOperation("only so many bytes")
        held = self._start + len(self._data)
        if not self._start <= self._place <= held:
            self._data.clear()
            self._guessed = 0
            self._start = held = self._place
        missing = self._place + size - held
        if missing > 0:
            self._fetch(held, max(missing, min(LARGEST_STEP, max(FIRST_STEP, self._step(held)))))
        begin = self._place - self._start
        piece = bytes(self._data[begin : begin + size])
        self._place += len(piece)
        del self._data[: self._place - self._start]
        self._start = self._place
        return piece

    def _step(self, held: int) -> int:
        if self._expected > held:
            return (self._expected - held) * 5 // 4  # later tokens are longer
        step = max(FIRST_STEP, self._guessed)
        self._guessed += step
        return step

    def _fetch(self, first: int, length: int) -> None:
        end = first + length
        if self._file.size is not None:
            end = min(end, self._file.size)

        def go_on() -> bool:
            begin = self._start + len(self._data)
            return begin < end and self._fetch_once(begin, end)

        if self.is_nearby and self._fetch_nearby(end):
            return
        try:
            while self._client.insist(go_on):
                pass
        except HubUnreachable:
            if not self._fetch_nearby(end):
                raise

    def _fetch_nearby(self, end: int) -> bool:
        """Fetch what is missing up to this place from somebody nearer than the hub; return whether it came."""
        begin, nearby, file = self._start + len(self._data), self._client.nearby, self._file
        if nearby is None or file.sha256 is None or file.size is None or begin >= end:
            return False
        found = nearby.read(file.sha256, file.size, begin, end - 1)
        if found is None:
            return False
        self.is_nearby = True
        self.fetched += len(found)
        self._data += found
        return True

    def _fetch_once(self, begin: int, end: int) -> bool:
        """Fetch what one answer gives; return whether another may give more."""
        skipped = 0

        def take(answer: httpx.Response, chunk: bytes) -> bool:
            nonlocal skipped
            if answer.status_code not in _CONTENT:
                return False
            self._same(answer)
            self._url = str(answer.url)
            self.fetched += len(chunk)
            passed = begin if answer.status_code == httpx.codes.OK else 0  # a server that knows no ranges
            part = chunk[max(0, passed - skipped) :]
            skipped += len(chunk) - len(part)
            self._data += part[: end - self._start - len(self._data)]
            return self._start + len(self._data) < end

        answer = self._client.ranged(self._url, begin, end - 1, take)
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return False
        if answer.status_code in _EXPIRED and self._url != self._page:
            self._url = self._page
            return True
        self._client.check(answer.status_code, answer.headers, self._repository.id, self._repository.commit)
        return False

    def _same(self, answer: httpx.Response) -> None:
        """Check that the file does not change while it is read."""
        etag = answer.headers.get("ETag")
        if self._etag is not None and etag != self._etag:
            raise HubError(f"{self._file.path} changed while it was read; try again.")
        self._etag = etag


def remote_header(
    client: HubClient, repository: Repository, variant: Variant, cache: HeaderCache | None = None
) -> GgufHeader:
    """Fetch the header of a variant, with the tensors of all its parts.

    Raises GgufError for what is no model, and as `HubClient.repository`.
    """
    name = f"{repository.id}/{variant.path}"
    headers = bounded(name, (_header(client, repository, part, cache) for part in variant.parts))
    try:
        return combine_shards(headers)
    except GgufError as error:
        raise GgufError(f"{name}: {error.reason}", offset=error.offset) from error


def fetch_headers(
    client: HubClient, repository: Repository, files: Sequence[RepoFile], cache: HeaderCache | None = None
) -> list[GgufHeader]:
    """Fetch the headers of single files."""
    return [_header(client, repository, file, cache) for file in files]


def _header(client: HubClient, repository: Repository, file: RepoFile, cache: HeaderCache | None) -> GgufHeader:
    # a hash that was announced is this hub's word alone, and this repository's: nobody has read the whole content
    content = file.etag or f"{repository.commit}/{file.path}"
    key = f"hub:{client.access.endpoint}/{repository.id}@{content}"
    known = cache.recall(key) if cache else None
    if known is not None:
        return known
    stream = RangeStream(client, repository, file)
    try:
        header = read_header(cast(BinaryIO, stream), file.size, stream.expect)
    except GgufError as error:
        raise GgufError(f"{repository.id}/{file.path}: {error.reason}", offset=error.offset) from error
    if cache and not stream.is_nearby:  # it is remembered as the hub's
        cache.remember(key, header)
    return header
