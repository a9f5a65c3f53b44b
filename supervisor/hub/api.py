"""Questions to the hub: what is in a repository, a file's bytes by ranges. Its own client does the downloads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from supervisor import __version__
from supervisor.core.catalog import RepoFile
from supervisor.errors import HubBusy, HubError, HubGated, HubTokenNeeded, HubUnreachable, RepositoryNotFound
from supervisor.hub.access import HubAccess

MAIN = "main"
_ATTEMPTS = 4
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_READ_SECONDS = 20.0
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Repository:
    """One revision of a repository; `id` in the hub's own spelling, `commit` its hash."""

    id: str
    commit: str
    revision: str
    files: tuple[RepoFile, ...]
    gated: bool = False


class HubClient:
    """The hub's HTTP interface; every call blocks, so call it in a thread. `sleep` waits between attempts."""

    def __init__(self, access: HubAccess, sleep: Callable[[float], None] = time.sleep) -> None:
        self.access = access
        self._sleep = sleep
        self._http: httpx.Client | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()

    def repository(self, repo: str, revision: str | None = None) -> Repository:
        """What is in a repository. Raises HubUnreachable, RepositoryNotFound, HubGated, HubTokenNeeded, HubBusy."""
        name = revision or MAIN
        path = f"/api/models/{repo}/revision/{quote(name, safe='')}"

        def ask() -> Repository:
            answer = self._client().get(self.access.endpoint + path, params={"blobs": "true"}, headers=self._headers())
            self.check(answer, repo, name)
            return _repository(answer, repo, name)

        return self._insist(ask)

    def url(self, repo: str, commit: str, path: str) -> str:
        """Where a file's content is."""
        return f"{self.access.endpoint}/{repo}/resolve/{quote(commit, safe='')}/{quote(path)}"

    @contextmanager
    def ranged(self, url: str, first: int, last: int) -> Iterator[httpx.Response]:
        """An open answer with bytes `first` to `last` of a file, or with all of it where ranges are not understood.

        What the network does wrong is httpx's to raise.
        """
        ours = url.startswith(self.access.endpoint + "/")
        headers = {"Range": f"bytes={first}-{last}", **(self._headers() if ours else {"Accept-Encoding": "identity"})}
        with self._client().stream("GET", url, headers=headers) as answer:
            yield answer

    def check(self, answer: httpx.Response, repo: str, revision: str) -> None:
        """Raise what the status of an answer means."""
        status = answer.status_code
        if status in _BUSY:
            raise _Again(_retry_after(answer.headers), f"the hub answered {status}")
        if status < 400:
            return
        code = answer.headers.get("X-Error-Code")
        message = answer.headers.get("X-Error-Message") or f"HTTP status {status}"
        raise refusal(self.access, repo, revision, status, code, message)

    def insist(self, work: Callable[[], _Found]) -> _Found:
        """Do something that talks to the hub, again after a pause where that may help."""
        return self._insist(work)

    def _insist(self, work: Callable[[], _Found]) -> _Found:
        if self.access.offline:
            raise HubUnreachable("The network may not be used (HF_HUB_OFFLINE or hub.offline).")
        wait = _FIRST_WAIT
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return work()
            except _Again as again:
                pause = again.seconds if again.seconds is not None else wait
                if attempt == _ATTEMPTS or pause > _LONGEST_WAIT:
                    asked = f"; it asks to wait {pause:.0f} s" if again.seconds is not None else ""
                    raise HubBusy(f"The hub at {self.access.endpoint} is busy: {again}{asked}. Try later.") from None
            except httpx.ConnectError as error:
                raise self._unreachable(error) from error
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if attempt == _ATTEMPTS or isinstance(error, httpx.ConnectTimeout | httpx.InvalidURL):
                    raise self._unreachable(error) from error
                pause = wait
            self._sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT)
        raise AssertionError("the last attempt returns or raises")

    def _unreachable(self, error: Exception) -> HubUnreachable:
        reason = str(error) or type(error).__name__
        return HubUnreachable(f"The hub at {self.access.endpoint} does not answer ({reason}).")

    def _client(self) -> httpx.Client:
        if self._http is None:
            timeout = httpx.Timeout(_READ_SECONDS, connect=self.access.timeout)
            self._http = httpx.Client(timeout=timeout, follow_redirects=True)
        return self._http

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"llama-supervisor/{__version__}", "Accept-Encoding": "identity"}
        return {**headers, "Authorization": f"Bearer {self.access.token}"} if self.access.token else headers


class _Again(Exception):
    """The hub wants to be asked later; `seconds`: by its own word."""

    def __init__(self, seconds: float | None, reason: str) -> None:
        super().__init__(reason)
        self.seconds = seconds


def refusal(access: HubAccess, repo: str, revision: str, status: int, code: str | None, message: str) -> HubError:
    """The error for a refusing answer: which token or page is needed, or what there is not."""
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


def _repository(answer: httpx.Response, repo: str, revision: str) -> Repository:
    try:
        told = answer.json()
        files = tuple(_file(sibling) for sibling in told["siblings"])
        return Repository(str(told.get("id") or repo), str(told["sha"]), revision, files, bool(told.get("gated")))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise HubError(
            f"What answers at {answer.url.host} does not speak like a hub; check HF_ENDPOINT and proxies."
        ) from None


def _file(sibling: Mapping[str, Any]) -> RepoFile:
    large = sibling.get("lfs") or {}
    size, sha = large.get("size", sibling.get("size")), large.get("sha256") or large.get("oid")
    etag = sha or sibling.get("blobId")
    return RepoFile(str(sibling["rfilename"]), None if size is None else int(size), sha, etag)


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds, from a number or a date."""
    told = headers.get("Retry-After")
    if told is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(told))
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    return None
