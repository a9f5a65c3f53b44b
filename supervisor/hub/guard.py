"""Guard the hub's own client: it sees no answer with a name, a size or a pace that is out of order.

The client makes paths of what a hub's headers say, and writes whatever comes. So every answer is looked at before the
client sees it. This runs in the worker's process, whose time limits are alarms of the system.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
from huggingface_hub import constants, get_session, set_client_factory
from huggingface_hub.utils import parse_xet_file_data_from_response  # type: ignore[attr-defined]  # a lazy export

from supervisor.core.repository.forms import (
    MAX_SIZE,
    is_commit,
    is_content_name,
    is_plain_path,
    is_repository,
    is_sha256,
    is_size,
)
from supervisor.system.cookies import NoCookies
from supervisor.system.reach import leads_inside

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]  # the module is absent, not of another type

Json = Mapping[str, Any]

_KEPT_UP = 1 << 16
_AGAIN_SECONDS = 5.0
_SMALL = 1 << 20
_MAX_QUOTED = 80
_BESIDE = 16 << 20  # bytes by which a file of the client's own may be larger than what is downloaded
_DIGITS = len(str(MAX_SIZE))
_LATER = frozenset({408, 429})


class Misled(Exception):
    """A hub's answer is none that a hub would give; the text is what it does, as half a sentence."""


class Stalled(Exception):
    """Too little came in the time there was for it."""


class Guard:
    """Looks at the answers for one file after the other.

    Args:
        patience: seconds in which an answer's head has to come, and then each 64 KiB of its body.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._file: dict[str, Any] = {}
        self._commit = ""

    def install(self) -> None:
        """Look at every answer that the hub's client gets."""
        before = get_session().event_hooks["request"]
        hooks: dict[str, list[Any]] = {"request": [*before, self._asked], "response": [self._answered]}
        set_client_factory(
            lambda: httpx2.Client(event_hooks=hooks, cookies=NoCookies(), follow_redirects=True, timeout=None)
        )
        if hasattr(signal, "SIGALRM"):  # not on Windows
            signal.signal(signal.SIGALRM, self._rung)

    def expect(self, repo: str, commit: str, file: Json) -> None:
        """Prepare for answers about this file. Raises Misled for names that are none."""
        path, etag, sha, size = (file.get(name) for name in ("path", "etag", "sha256", "size"))
        right = (
            is_repository(repo)
            and is_commit(commit)
            and is_plain_path(str(path))
            and (etag is None or is_content_name(etag))
            and (sha is None or is_sha256(sha))
            and (size is None or is_size(size))
        )
        if not right:
            raise Misled(f"described {_quoted(repo)}, {_quoted(path)} with invalid names or numbers")
        self._commit, self._file = commit, dict(file)

    def rest(self) -> None:
        """Wait for nothing now."""
        self._alarm(0)

    def _alarm(self, seconds: float) -> None:
        if hasattr(signal, "setitimer"):  # again, should the first be lost where errors are
            signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS if seconds else 0)

    def _rung(self, _number: int, _frame: object) -> None:
        raise Stalled(f"it sent less than {_KEPT_UP >> 10} KiB in {self._patience:.0f} s")

    def _asked(self, request: Any) -> None:
        """Let a request go out to what the hub itself could reach, and with the token to the hub alone."""
        self._alarm(self._patience)
        _check_way(request.url)
        request.headers["Accept-Encoding"] = "identity"
        if not _is_hub(request.url):
            request.headers.pop("Authorization", None)

    def _answered(self, answer: Any) -> None:
        self._alarm(self._patience)
        if answer.status_code in _LATER:
            answer.raise_for_status()  # the client would wait for as long as it is told to
        coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in {"", "identity"}:  # what comes is bounded, and not what that would become
            raise Misled(f"compresses its answer ({_quoted(coding)}) although it was asked not to")
        commit = answer.headers.get("X-Repo-Commit")
        if commit is not None and commit != self._commit:
            raise Misled(f"answers for the commit {_quoted(commit)} where {self._commit} was asked for")
        if answer.request.method == "HEAD":
            self._check_metadata(answer)
        xet = parse_xet_file_data_from_response(answer)
        if xet is not None and not _is_hub(xet.refresh_route):  # asked with the token, by a client that nobody guards
            raise Misled(f"has {_quoted(xet.refresh_route)} asked for its storage (Xet), which is not its own address")
        storage = answer.headers.get(constants.HUGGINGFACE_HEADER_X_XET_ENDPOINT)
        if storage is not None:  # asked by another client, which nobody guards
            _check_way(httpx2.URL(storage))
        answer.stream = _bounded(answer.stream, self._most(answer), self)

    def _check_metadata(self, answer: Any) -> None:
        etag = answer.headers.get("X-Linked-Etag") or answer.headers.get("ETag")
        name = None if etag is None else etag.lstrip("W/").strip('"')
        expected = self._file.get("sha256")
        if name is not None and not is_content_name(name):
            raise Misled(f"gives {_quoted(name)} as the name of a content (ETag)")
        if name is not None and is_sha256(name) and expected not in {None, name}:
            raise Misled(f"gives {name} as the sha256 of {self._file['path']}, and its listing {expected}")
        told = answer.headers.get("X-Linked-Size")
        if told is None and not answer.is_redirect:
            told = answer.headers.get("Content-Length")
        if told is not None and answer.is_success | answer.is_redirect:
            self._check_size(told)

    def _check_size(self, told: str) -> None:
        size = int(told) if told.isascii() and told.isdecimal() and len(told) <= _DIGITS else -1
        if not is_size(size):
            raise Misled(f"gives {_quoted(told)} as the size of {self._file['path']}")
        listed = self._file.get("size")
        if listed not in {None, size}:
            raise Misled(f"gives {size} bytes as the size of {self._file['path']}, and its listing {listed}")
        self._file["size"] = size
        limit_files(size)

    def _most(self, answer: Any) -> int:
        """Return the bytes that an answer may have: what is missing of the file, or a little where it is no file."""
        if not answer.is_success or self._file.get("size") is None:
            return _SMALL
        begun = 0
        if answer.status_code == 206:
            begin = answer.request.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
            begun = int(begin) if begin.isdecimal() else 0
        return max(int(self._file["size"]) - begun, _SMALL)

    def too_much(self, most: int) -> Misled:
        """Return the error for an answer that does not end where it should."""
        return Misled(f"sends more than the {most} bytes that are missing of {self._file.get('path')}")

    def arrived(self) -> None:
        """Take note that it keeps up."""
        self._alarm(self._patience)


def limit_files(size: int | None) -> None:
    """Have the system refuse files that are larger than what was announced, whoever in this process writes them."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = most if size is None else size + _BESIDE
        if most != resource.RLIM_INFINITY:
            limit = min(limit, most)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


def _bounded(stream: Any, most: int, guard: Guard) -> Any:
    """Return a body that ends, or raises, after so many bytes, and that has to keep up."""

    class Bounded(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            left, since = most, 0
            for piece in stream:
                left -= len(piece)
                since += len(piece)
                if left < 0:
                    raise guard.too_much(most)
                if since >= _KEPT_UP:
                    since = 0
                    guard.arrived()
                yield piece

        def close(self) -> None:
            guard.rest()
            stream.close()

    return Bounded()


def _check_way(url: Any) -> None:
    if leads_inside(_host(httpx2.URL(constants.ENDPOINT)), _host(url)):
        raise Misled(f"sends on to {_quoted(_host(url))}, which is inside this network or this machine")


def _host(url: Any) -> str:
    """Return the host as it is looked up and connected to."""
    return str(url.raw_host.decode("ascii"))


def _is_hub(url: Any) -> bool:
    """Return whether an address is one of the hub itself."""
    try:
        return _origin(httpx2.URL(url)) == _origin(httpx2.URL(constants.ENDPOINT))
    except httpx2.InvalidURL:
        return False


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, _host(url), url.port


def _quoted(told: object) -> str:
    return ascii(str(told)[:_MAX_QUOTED])
