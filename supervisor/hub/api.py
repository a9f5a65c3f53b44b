"""Questions to the hub: what is in a repository, a file's bytes by ranges. Its own client does the downloads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import quote

import httpx

from supervisor import __version__
from supervisor.errors import HubBusy, HubError, HubGated, HubTokenNeeded, HubUnreachable, RepositoryNotFound
from supervisor.hub.access import HubAccess
from supervisor.hub.listing import MAIN, Repository, read_listing
from supervisor.hub.nearby import Nearby
from supervisor.system.outside import Answer, Limits, LoopThread, OutOfBounds, Take, TooSlow, bounded_client, get, read

_ATTEMPTS = 4
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_READ_SECONDS = 20.0
_LISTING = Limits(size=8 << 20, seconds=60.0)  # some 30,000 files
_SLOWEST = 1 << 15  # bytes per second of a line on which headers are still read from afar
_MAX_QUOTED = 200  # characters of what the hub says, repeated in a message
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_Found = TypeVar("_Found")


class HubClient:
    """The hub's HTTP interface; every call blocks, so call it in a thread.

    Args:
        sleep: waits between attempts; None: until it is closed at the most.
        listing: what the description of a repository may take.

    Attributes:
        nearby: who is asked for the beginnings of files where the hub cannot be; None: nobody.
    """

    def __init__(
        self, access: HubAccess, sleep: Callable[[float], object] | None = None, listing: Limits = _LISTING
    ) -> None:
        self.access = access
        self.nearby: Nearby | None = None
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait
        self._listing = listing
        self._loop = LoopThread()
        self._http: httpx.AsyncClient | None = None

    def close(self) -> None:
        """Close the connections; whoever waits for an answer gets HubUnreachable, at once."""
        self._closed.set()
        self._loop.close(self._http.aclose if self._http is not None else None)
        self._http = None

    def repository(self, repo: str, revision: str | None = None) -> Repository:
        """Return the contents of a repository.

        Raises HubUnreachable, RepositoryNotFound, HubGated, HubTokenNeeded, HubBusy, and HubError where what answers
        breaks its limits or is no hub's word.
        """
        name = revision or MAIN
        url = f"{self.access.endpoint}/api/models/{repo}/revision/{quote(name, safe='')}?blobs=true"

        def ask() -> Repository:
            answer = self._loop.run(self._get(url))
            self.check(answer.status, answer.headers, repo, name)
            return read_listing(answer.body, repo, name, answer.url.host)

        return self.insist(ask)

    def url(self, repo: str, commit: str, path: str) -> str:
        """Return the URL of a file's content."""
        return f"{self.access.endpoint}/{repo}/resolve/{quote(commit, safe='')}/{quote(path)}"

    def ranged(self, url: str, first: int, last: int, take: Take) -> httpx.Response:
        """Give bytes `first` to `last` of a file to `take`, or all of it where ranges are not understood.

        What the network does wrong is httpx's to raise, or OutOfBounds.
        """
        ours = url.startswith(self.access.endpoint + "/")
        headers = {"Range": f"bytes={first}-{last}", **(self._headers() if ours else {})}
        seconds = _LISTING.seconds + (last - first) / _SLOWEST
        return self._loop.run(self._read(url, take, seconds, headers))

    def check(self, status: int, headers: httpx.Headers, repo: str, revision: str) -> None:
        """Raise the error that the status of an answer means."""
        if status in _BUSY:
            raise _Again(_retry_after(headers), f"the hub answered {status}")
        if status < 400:
            return
        code = headers.get("X-Error-Code")
        message = headers.get("X-Error-Message") or f"HTTP status {status}"
        raise refusal(self.access, repo, revision, status, code, message)

    def insist(self, work: Callable[[], _Found]) -> _Found:
        """Do something that talks to the hub, again after a pause where that may help."""
        if self.access.offline:
            raise HubUnreachable("The network may not be used (HF_HUB_OFFLINE or hub.offline).")
        wait = _FIRST_WAIT
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._unless_closed(work)
            except _Again as again:
                pause = again.seconds if again.seconds is not None else wait
                if attempt == _ATTEMPTS or pause > _LONGEST_WAIT:
                    asked = f"; it asks to wait {pause:.0f} s" if again.seconds is not None else ""
                    raise HubBusy(f"The hub at {self.access.endpoint} is busy: {again}{asked}. Try later.") from None
            except httpx.ConnectError as error:
                raise self._unreachable(error) from error
            except TooSlow as error:
                raise HubUnreachable(f"The hub at {self.access.endpoint} {error}.") from error
            except OutOfBounds as error:
                raise HubError(f"What answers at {self.access.endpoint} {error}; it was left.") from error
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if attempt == _ATTEMPTS or isinstance(error, httpx.ConnectTimeout | httpx.InvalidURL):
                    raise self._unreachable(error) from error
                pause = wait
            self._sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT)
        raise AssertionError("the last attempt returns or raises")

    def _unless_closed(self, work: Callable[[], _Found]) -> _Found:
        try:
            if not self._closed.is_set():
                return work()
        except CancelledError:
            pass
        raise HubUnreachable(f"The hub at {self.access.endpoint} is not asked any more: its client is closed.")

    def _unreachable(self, error: Exception) -> HubUnreachable:
        reason = str(error) or type(error).__name__
        return HubUnreachable(f"The hub at {self.access.endpoint} does not answer ({reason}).")

    async def _get(self, url: str) -> Answer:
        return await get(self._client(), url, self._listing, self._headers())

    async def _read(self, url: str, take: Take, seconds: float, headers: Mapping[str, str]) -> httpx.Response:
        return await read(self._client(), url, take, seconds, headers)

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = bounded_client(httpx.Timeout(_READ_SECONDS, connect=self.access.timeout))
        return self._http

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"llama-supervisor/{__version__}"}
        return {**headers, "Authorization": f"Bearer {self.access.token}"} if self.access.token else headers


class _Again(Exception):
    """The hub wants to be asked later; `seconds`: by its own word."""

    def __init__(self, seconds: float | None, reason: str) -> None:
        super().__init__(reason)
        self.seconds = seconds


def refusal(access: HubAccess, repo: str, revision: str, status: int, code: str | None, message: str) -> HubError:
    """Return the error for a refusing answer: the token or page that is needed, or what does not exist."""
    message = message[:_MAX_QUOTED]
    page = f"{access.endpoint}/{repo}"
    if code == "GatedRepo":
        more = "and use a token of that account" if access.token else "and set HF_TOKEN to a token of that account"
        return HubGated(f"{repo} is gated: accept its licence at {page} {more}.")
    if code == "RevisionNotFound":
        return RepositoryNotFound(f"{repo} has no revision '{revision}'; see {page}.")
    if code == "EntryNotFound":
        return RepositoryNotFound(f"{repo} has no such file at '{revision}'; see {page}.")
    if status == 401 and access.token and code is None:
        return HubTokenNeeded(f"The hub does not accept the token in use ({message}); renew HF_TOKEN or the log-in.")
    if status == 403:
        return HubTokenNeeded(f"The token in use may not read {repo} ({message}); use one that may.")
    if status in {401, 404}:
        private = (
            "the token in use does not open it" if access.token else "it is private: HF_TOKEN or a log-in opens it"
        )
        return RepositoryNotFound(f"There is no repository {repo} at {access.endpoint}, or {private}.")
    return HubError(f"The hub at {access.endpoint} answered with HTTP status {status} ({message}).")


def _retry_after(headers: httpx.Headers) -> float | None:
    """Return seconds, from a number or a date."""
    told = headers.get("Retry-After", "")
    seconds = math.nan
    with suppress(ValueError):
        seconds = float(told)
    if math.isnan(seconds):
        with suppress(ValueError, TypeError, OverflowError):
            seconds = parsedate_to_datetime(told).timestamp() - time.time()
    return None if math.isnan(seconds) else max(0.0, seconds)
