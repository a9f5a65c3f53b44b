"""The daemon's REST interface, on the standard library's HTTP client.

`http.client` costs 20 ms to import where httpx costs 200: `supervisor ps` should feel instant. One connection per
call; streams are generators that close their connection when they end, fail or are closed.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from supervisor.core.text.secrets import without_credentials
from supervisor.errors import DaemonError, DaemonUnproven, DaemonUnreachable, RemoteError, UsageError
from supervisor.system.deadline import cut_off
from supervisor.system.proof import CHALLENGE_HEADER, PROOF_HEADER, is_proven, new_challenge

Json = dict[str, Any]
"""What a daemon answers; whoever reads it knows what stands where."""

CONNECT_SECONDS = 5.0
_NO_KEY = "The daemon needs an API key, or another one; give it with --api-key or in SUPERVISOR_API_KEY."
_TLS_HELP = "SSL_CERT_FILE names the authorities to trust, SUPERVISOR_CLIENT_CERT a file with your certificate and key."
ANSWER_SECONDS = 30.0
_LONGEST_HEALTH = 65_536  # bytes; a stranger may say anything
_LONGEST_ANSWER = 1 << 28  # bytes; a status of ten thousand models takes a tenth of it
_LONGEST_LINE = 1 << 26  # bytes of a stream


class Client:
    """Calls to one daemon.

    Args:
        url: its base URL, as in the endpoint file; a path prefix is kept. UsageError where it is no HTTP URL.
        key: sent as a bearer token when given.
        certificate: in PEM, the one that the daemon shows, for https; None: one that a usual authority vouches for. Our
            own, where the daemon asks for one, is in the file of $SUPERVISOR_CLIENT_CERT.
        secret: what the daemon proves to know, anew on every connection, before anything is sent; None: it need not.
    """

    def __init__(
        self, url: str, key: str | None = None, secret: str | None = None, certificate: str | None = None
    ) -> None:
        parts = _split(url.rstrip("/"))
        self.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # who is named there is not told
        _check_key(key)
        self._tls = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname or "", parts.port, parts.path
        self._key = key
        self._secret = secret
        self._certificate = certificate
        self._told: Callable[[socket.socket], None] | None = None

    def telling(self, told: Callable[[socket.socket], None]) -> Client:
        """Return a client to the same daemon that tells of the socket of every call, for who may break it off.

        Whoever shuts it down, from any thread, ends the call with a DaemonError.
        """
        found = copy.copy(self)
        found._told = told
        return found

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Json:
        """Return the JSON object at `path`. Raises DaemonUnreachable, RemoteError (the daemon's own), DaemonError."""
        return self._call("GET", path + (f"?{urlencode(query)}" if query else ""), None, ANSWER_SECONDS)

    def post(self, path: str, body: Json, timeout: float | None = ANSWER_SECONDS) -> Json:
        """Return the JSON answer to `body`; `timeout` in seconds, None = as long as it takes. Raises as `get`."""
        return self._call("POST", path, body, timeout)

    def delete(self, path: str, query: Mapping[str, object], timeout: float | None = ANSWER_SECONDS) -> Json:
        """Return the JSON answer to a DELETE. Raises as `get`."""
        return self._call("DELETE", path + (f"?{urlencode(query)}" if query else ""), None, timeout)

    def events(self, path: str, body: Json) -> Generator[str, None, None]:
        """Yield the `data` of each server-sent event that answers `body`, as they arrive. Raises as `get`."""
        data: list[str] = []
        for line in self._lines("POST", path, body, accept="text/event-stream"):
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
                if sum(map(len, data)) > _LONGEST_LINE:
                    raise self._stranger()
            elif not line and data:
                yield "\n".join(data)
                data.clear()

    def parsed(self, text: bytes | str) -> Json:
        """Return the JSON object of an answer or an event. Raises DaemonError."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._stranger()
        return value

    def lines(self, path: str, query: Mapping[str, object]) -> Generator[str, None, None]:
        """Return the lines of the text at `path`, without their ends, as they arrive. Raises as `get`."""
        return self._lines("GET", f"{path}?{urlencode(query)}", None, accept="text/plain")

    def _call(self, method: str, path: str, body: Json | None, timeout: float | None) -> Json:
        with self._request(method, path, body, "application/json", timeout) as response:
            return self._object(response)

    def _lines(self, method: str, path: str, body: Json | None, accept: str) -> Generator[str, None, None]:
        with self._request(method, path, body, accept, None) as response:
            while line := response.readline(_LONGEST_LINE + 1):
                if len(line) > _LONGEST_LINE:
                    raise self._stranger()
                yield line.decode("utf-8", "replace").rstrip("\r\n")

    @contextlib.contextmanager
    def _request(
        self, method: str, path: str, body: Json | None, accept: str, timeout: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        """Give a successful response, for the caller to read. Whatever else happens becomes one of our errors."""
        connection = self._connect()
        try:
            headers = {"Accept": accept, "Content-Type": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            if self._told is not None:
                self._told(connection.sock)
            self._check_proof(connection)
            if connection.sock is not None:  # otherwise `request` says so
                connection.sock.settimeout(timeout)
            connection.request(method, self._prefix + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise remote_error(self._object(response), response.status)
            yield response
        except TimeoutError as error:
            seconds = timeout or ANSWER_SECONDS
            raise DaemonUnreachable(f"The daemon at {self.url} did not answer within {seconds:g} s.") from error
        except ssl.SSLError as error:  # a certificate of ours is asked for, and refused, after the handshake
            raise DaemonError(f"TLS with {self.url} failed: {error.reason}. {_TLS_HELP}") from error
        except (http.client.HTTPException, OSError) as error:
            more = f" {_TLS_HELP}" if self._tls else ""
            raise DaemonError(f"The daemon at {self.url} broke off its answer; see `supervisor logs`.{more}") from error
        finally:
            connection.close()

    def _object(self, response: http.client.HTTPResponse) -> Json:
        """Return the JSON object of an answer. Raises DaemonError."""
        data = response.read(_LONGEST_ANSWER + 1)
        if len(data) > _LONGEST_ANSWER:
            raise self._stranger()
        return self.parsed(data)

    def _stranger(self) -> DaemonError:
        return DaemonError(f"What answers at {self.url} is not this program's daemon.")

    def _check_proof(self, connection: http.client.HTTPConnection) -> None:
        """Send nothing to a program that took a daemon's port. Raises DaemonUnproven."""
        if self._secret is None:
            return
        connection.auto_open = 0  # what follows goes over this very connection or not at all
        connection.sock.settimeout(ANSWER_SECONDS)
        challenge = new_challenge()
        with cut_off(connection.sock, ANSWER_SECONDS):
            connection.request("GET", f"{self._prefix}/health", headers={CHALLENGE_HEADER: challenge})
            response = connection.getresponse()
            response.read(_LONGEST_HEALTH)
        if not is_proven(self._secret, challenge, self._port or 80, response.headers.get(PROOF_HEADER)):
            raise DaemonUnproven(f"What answers at {self.url} is not the daemon that wrote the endpoint file.")

    def _connect(self) -> http.client.HTTPConnection:
        connection = self._unconnected()
        try:
            connection.connect()
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or str(error)
            raise DaemonUnreachable(f"TLS with {self.url} failed: {why}. {_TLS_HELP}") from error
        except OSError as error:
            raise DaemonUnreachable(f"No daemon answers at {self.url} ({error.strerror or error}).") from error
        except UnicodeError as error:
            raise UsageError(f"{self.url} names no host: {error}") from None
        return connection

    def _unconnected(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        from supervisor.system.certificates import pinned_context, usual_context  # noqa: PLC0415 - for https alone

        own = os.environ.get("SUPERVISOR_CLIENT_CERT") or None
        try:
            context = usual_context(own) if self._certificate is None else pinned_context(self._certificate, own)
        except (OSError, ValueError) as error:
            raise UsageError(f"The certificates for {self.url} cannot be read ({error}). {_TLS_HELP}") from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_SECONDS, context=context)


def remote_error(envelope: Mapping[str, object], status: int | None = None) -> RemoteError:
    """Return the error in an envelope `{"error": {...}}` of the daemon, with its own code."""
    found = envelope.get("error")
    if not isinstance(found, dict):
        return RemoteError(f"The daemon answered with HTTP status {status} and no explanation.", code="internal_error")
    lines = found.get("log_lines") or ()
    code = str(found.get("code") or "internal_error")
    message = str(found.get("message") or "The daemon gave no reason.")
    return RemoteError(
        _NO_KEY if code == "unauthorized" else message,
        code=code,
        param=found.get("param"),
        log_lines=tuple(str(line) for line in lines),
        status=status,
    )


def _check_key(key: str | None) -> None:
    """Raise UsageError, which does not quote the key, where no header can hold it."""
    try:
        fits = not key or (key.isprintable() and bool(key.encode("latin-1")))
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise UsageError(
            "The API key cannot be sent: it has a line end, or another character that no header can hold. "
            "Look at --api-key or SUPERVISOR_API_KEY."
        )


def _split(url: str) -> SplitResult:
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if known and url.isprintable() and " " not in url:
            return parts
    raise UsageError(f"{without_credentials(url)!r} is not the URL of a daemon; it looks like http://127.0.0.1:8686")
