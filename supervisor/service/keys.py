"""The API keys of the daemon: added, shown, rotated, revoked, and kept in their file with what they have used.

What changes a key is in the file before it is answered. What is used is written twice a minute: a daemon that is
killed hard forgets that much.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

import structlog

from supervisor.core.requests.admission import RawHeaders, admit
from supervisor.core.requests.keys import Key, Keyring, KeyRules, Usage, digest_of
from supervisor.errors import InvalidRequest, KeyNotFound, KeysUnusable
from supervisor.store.keyfile import KeyFile, record_of

_log = structlog.get_logger()

_PREFIX = "sup-"
_BYTES = 32  # of randomness
_WRITE_S = 30.0  # between two writes of what is used


def new_text() -> str:
    """Return the text of a new key: 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(_BYTES)


@dataclass(frozen=True)
class KeyUsed:
    """What a key has used."""

    requests: int
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class KeyStatus:
    """A key as it is shown; never its text.

    Attributes:
        state: `active`, `expired` or `revoked`.
        created_at, rotated_at, revoked_at, expires_at: seconds since 1970.
    """

    name: str
    state: str
    scopes: tuple[str, ...]
    models: tuple[str, ...]
    requests_per_minute: int | None
    tokens_per_minute: int | None
    token_budget: int | None
    created_at: float
    expires_at: float | None
    rotated_at: float | None
    revoked_at: float | None
    usage: KeyUsed

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        return asdict(self)


class Keys:
    """All of them.

    Args:
        file: read here, once.
        configured: whether the configuration has keys, which may do everything.
        clock: seconds since 1970.
        make_text: the text of a new key.

    Raises KeysUnusable.
    """

    def __init__(
        self,
        file: KeyFile,
        configured: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
        make_text: Callable[[], str] = new_text,
    ) -> None:
        self._file = file
        self._ring = Keyring.of(file.read())
        self._configured = configured
        self.clock = clock
        self._make_text = make_text
        self._writing = asyncio.Lock()
        self._written = self._used()

    def admit(self, configured: Collection[bytes], call: tuple[str, str], headers: RawHeaders) -> Key | None:
        """Return the key that a request has come with; None where nothing limits it. Raises as `admission.admit`."""
        return admit(self._ring, configured, call, headers, self.clock())

    def spend(self, name: str, prompt: int, completion: int) -> None:
        """Count the tokens of a request that another process has answered; nothing for a key that is no more."""
        with contextlib.suppress(KeyNotFound):
            self._ring.named(name).spend(prompt, completion)

    def all(self) -> list[KeyStatus]:
        """Every key, revoked ones too."""
        return [self.status(key) for key in self._ring]

    async def add(self, rules: KeyRules) -> tuple[KeyStatus, str]:
        """Add a key; its text is told here and never again. Raise KeyRefused, InvalidRequest, KeysUnusable."""
        async with self._writing:
            if rules.has_expired(self.clock()):
                raise InvalidRequest("`expires_at` has passed already.", param="expires_at")
            self._ring.check(rules, configured=self._configured())
            text = self._make_text()
            key = Key(rules, digest_of(text.encode()), self.clock())
            await self._write(Keyring.of([*self._ring, key]))
            self._ring.put(key)
        _log.info("key_added", key=rules.name, scopes=sorted(rules.scopes))
        return self.status(key), text

    async def rotate(self, name: str) -> tuple[KeyStatus, str]:
        """Give a key another text; the old one is of no use at once. Raise KeyNotFound, KeysUnusable."""
        async with self._writing:
            key, text = self._ring.named(name), self._make_text()
            before = key.digest, key.rotated_at
            self._ring.rotate(key, digest_of(text.encode()), self.clock())
            try:
                await self._write(self._ring)
            except KeysUnusable:
                self._ring.rotate(key, *before)
                raise
        _log.info("key_rotated", key=name)
        return self.status(key), text

    async def revoke(self, name: str) -> KeyStatus:
        """End a key at once, whether that can be written down or not. Raise KeyNotFound, KeyRefused, KeysUnusable."""
        async with self._writing:
            key = self._ring.named(name)
            self._ring.check_revocation(key, configured=self._configured())
            self._ring.revoke(key, self.clock())
            try:
                await self._write(self._ring)
            except KeysUnusable as error:
                said = f"'{name}' is revoked, but only until the daemon ends: {error.message} Then revoke it again."
                raise KeysUnusable(said) from error
        _log.info("key_revoked", key=name)
        return self.status(key)

    async def keep(self, every: float = _WRITE_S) -> None:
        """Write down what is used, for as long as the daemon runs."""
        while True:
            await asyncio.sleep(every)
            await self.flush()

    async def flush(self) -> None:
        """Write down what was used since the last time; what cannot be written is tried again the next time."""
        async with self._writing:
            if self._used() != self._written:
                try:
                    await self._write(self._ring)
                except KeysUnusable as error:
                    _log.warning("keys_not_written", reason=error.message)

    def status(self, key: Key) -> KeyStatus:
        """One key's."""
        rules, now = key.rules, self.clock()
        ended = "revoked" if key.revoked_at is not None else "expired" if rules.has_expired(now) else "active"
        return KeyStatus(
            name=rules.name,
            state=ended,
            scopes=tuple(sorted(rules.scopes)),
            models=rules.models,
            requests_per_minute=rules.requests_per_minute,
            tokens_per_minute=rules.tokens_per_minute,
            token_budget=rules.token_budget,
            created_at=key.created_at,
            expires_at=rules.expires_at,
            rotated_at=key.rotated_at,
            revoked_at=key.revoked_at,
            usage=KeyUsed(**asdict(key.usage)),
        )

    def _used(self) -> dict[str, Usage]:
        return {key.rules.name: key.usage for key in self._ring}

    async def _write(self, ring: Keyring) -> None:
        used = self._used()
        await asyncio.to_thread(self._file.write, [record_of(key) for key in ring])
        self._written = used
