"""API keys: what each may do, what it has used, and whether a request with it is let in. The clock is an argument.

A key is known by the SHA-256 of its text. It needs no slow hash, as a password does: its text is 256 random bits of our
own making, which nobody finds by trying. Looking a hash up in a table tells nothing by its time, as nobody can choose
texts whose hashes are alike.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from supervisor.core.requests.scopes import Row, Scope
from supervisor.errors import (
    BudgetSpent,
    Forbidden,
    InvalidRequest,
    KeyExpired,
    KeyNotFound,
    KeyRefused,
    RateLimited,
    RequestError,
    Unauthorized,
)

MOST_KEYS: Final = 1000
"""Keys that are kept, revoked ones among them."""

_MINUTE: Final = 60.0


@lru_cache(maxsize=256)
def digest_of(text: bytes) -> bytes:
    """Return what is kept of a key: the SHA-256 of its text.

    Those of the last texts are remembered, in memory alone, where requests bring these texts as well.
    """
    return hashlib.sha256(text).digest()


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What a key may do.

    Attributes:
        models: patterns of ids of models, `*` stands for any text; empty: all models.
        expires_at: seconds since 1970, from which on it is of no use; None: never.
        requests_per_minute, tokens_per_minute: of a bucket of that size; None: any.
        token_budget: prompt and completion tokens in all; None: any.
    """

    name: str
    scopes: frozenset[Scope]
    models: tuple[str, ...] = ()
    expires_at: float | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    token_budget: int | None = None

    def sees(self, model: str) -> bool:
        """Return whether a model, by its id, is there for the key."""
        return not self.models or _matches_one(self.models, model)

    def has_expired(self, now: float) -> bool:
        """Return whether its time is over; `now`: seconds since 1970."""
        return self.expires_at is not None and now >= self.expires_at


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used: requests that were let in, tokens as the engines count them."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.completion_tokens


class Bucket:
    """What may be used in a minute: it begins full, and fills evenly.

    It may be overdrawn, as tokens are known only once they are used; it then has to fill again first.
    """

    __slots__ = ("_at", "_level", "_size")

    def __init__(self, size: int, level: float | None = None) -> None:
        """level: what is in it; None: it is full."""
        self._size = size
        self._level = float(size) if level is None else level
        self._at: float | None = None

    @property
    def level(self) -> float:
        """Amount that was in it when it was last asked; less than 0 where it was overdrawn."""
        return self._level

    def wait(self, now: float) -> float:
        """Return the seconds until there is one again; 0: there is."""
        if self._at is not None and now > self._at:  # a clock that is set back fills nothing
            self._level = min(self._size, self._level + (now - self._at) * self._size / _MINUTE)
        self._at = now
        return 0.0 if self._level >= 1 else (1 - self._level) * _MINUTE / self._size

    def take(self, count: int) -> None:
        """Take so many out."""
        self._level -= count


class Key:
    """A key in use.

    Attributes:
        digest: see `digest_of`; another after a rotation.
        created_at, rotated_at, revoked_at: seconds since 1970; None: never.
    """

    def __init__(
        self,
        rules: KeyRules,
        digest: bytes,
        created_at: float,
        usage: Usage | None = None,
        *,
        rotated_at: float | None = None,
        revoked_at: float | None = None,
    ) -> None:
        self.rules = rules
        self.digest = digest
        self.created_at = created_at
        self._usage = usage or Usage()
        self._requests_since = self._prompt_since = self._completion_since = 0  # since then: cheaper to count
        self.rotated_at = rotated_at
        self.revoked_at = revoked_at
        self._requests = _bucket(rules.requests_per_minute)
        self._tokens = _bucket(rules.tokens_per_minute)

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far."""
        before = self._usage
        return Usage(
            before.requests + self._requests_since,
            before.prompt_tokens + self._prompt_since,
            before.completion_tokens + self._completion_since,
        )

    def ended(self, now: float) -> RequestError | None:
        """Return why the key is of no use any more, or None."""
        if self.revoked_at is not None:
            return Unauthorized(f"The key '{self.rules.name}' is revoked.")
        if self.rules.has_expired(now):
            return KeyExpired(f"The key '{self.rules.name}' has expired. Ask for another one.")
        return None

    def enter(self, row: Row, now: float) -> RequestError | None:
        """Count a request, or return why it is turned away, which costs nothing."""
        refusal = self.ended(now) or self.may(row) or self._limited(self._requests, "requests", now)
        if refusal is None and row.generates:
            refusal = self.may_generate(now)
        if refusal is None:
            self._requests_since += 1
            if self._requests is not None:
                self._requests.take(1)
        return refusal

    def may(self, row: Row) -> RequestError | None:
        """Return why the key may not do this, or None."""
        rules = self.rules
        if not rules.scopes & row.scopes:
            needed = " or ".join(f"`{scope}`" for scope in sorted(row.scopes))
            return Forbidden(f"This needs a key with the scope {needed}; '{rules.name}' has not got it.")
        if row.all_models and rules.models:
            return all_models_only(rules.name)
        return None

    def may_generate(self, now: float) -> RequestError | None:
        """Return why the key may use no token now, or None."""
        return self._generating(self.usage.tokens, now)

    def left(self, now: float) -> tuple[int | None, float | None]:
        """Return the tokens that are left of its budget, and of those a minute; None: it has no such limit."""
        budget, bucket = self.rules.token_budget, self._tokens
        if bucket is not None:
            bucket.wait(now)
        return None if budget is None else budget - self.usage.tokens, None if bucket is None else bucket.level

    def spend(self, prompt: int, completion: int) -> None:
        """Count the tokens of an answer."""
        self._prompt_since += prompt
        self._completion_since += completion
        if self._tokens is not None:
            self._tokens.take(prompt + completion)

    def _generating(self, used: int, now: float) -> RequestError | None:
        budget = self.rules.token_budget
        if budget is not None and used >= budget:
            return BudgetSpent(f"The key '{self.rules.name}' has used up its tokens. Ask for another one.")
        return self._limited(self._tokens, "tokens", now)

    def _limited(self, bucket: Bucket | None, what: str, now: float) -> RequestError | None:
        wait = 0.0 if bucket is None else bucket.wait(now)
        if not wait:
            return None
        most = self.rules.requests_per_minute if what == "requests" else self.rules.tokens_per_minute
        said = f"The key '{self.rules.name}' has used up its {most} {what} a minute."
        return RateLimited(f"{said} Repeat the request later.", retry_after=wait)


def all_models_only(name: str) -> Forbidden:
    """Return the refusal of what tells of all models."""
    return Forbidden(f"This is for keys that see all models; '{name}' sees some of them.")


@dataclass(slots=True)
class Keyring:
    """All keys, by their names; those that were revoked too, for what they have used."""

    keys: dict[str, Key] = field(default_factory=dict)
    _by_digest: dict[bytes, Key] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Iterable[Key]) -> Keyring:
        """Return the keyring of these keys."""
        ring = cls()
        for key in keys:
            ring.put(key)
        return ring

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self.keys.values()))

    @property
    def asks(self) -> bool:
        """True if a key is asked for: there is one that is not revoked. One that has expired opens no door."""
        return bool(self._by_digest)

    def find(self, digest: bytes) -> Key | None:
        """Return the key with this digest, unless it is revoked."""
        found = self._by_digest.get(digest)
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None

    def named(self, name: str) -> Key:
        """Return the key of exactly this name. Raise KeyNotFound, for a revoked one too."""
        key = self.keys.get(name)
        if key is None or key.revoked_at is not None:
            raise KeyNotFound(f"There is no key '{name}'; `supervisor keys list` shows them.", param="name")
        return key

    def check(self, rules: KeyRules, *, configured: bool) -> None:
        """Raise KeyRefused where a key with these rules cannot be added; `configured`: the configuration has keys."""
        taken = self.keys.get(rules.name)
        if taken is not None and taken.revoked_at is None:
            raise KeyRefused(f"There is a key '{rules.name}' already; rotate it, or take another name.", param="name")
        if rules.models and Scope.MANAGE in rules.scopes:
            raise InvalidRequest("A key that manages sees all models; leave out `models` or `manage`.", param="models")
        if not configured and not (_lasts(rules) or self._managers()):
            raise KeyRefused(
                "Once there is a key, every request needs one, and nobody could manage for ever with this one. First "
                "add a key with the scope `manage` that does not expire.",
                param="scopes",
            )
        if taken is None and len(self.keys) >= MOST_KEYS and not self._revoked():
            raise KeyRefused(f"There are {MOST_KEYS} keys; revoke some of them.")

    def put(self, key: Key) -> None:
        """Add a key, in place of a revoked one of that name; of very many the one that was revoked first goes."""
        self.keys.pop(key.rules.name, None)
        if len(self.keys) >= MOST_KEYS and (revoked := self._revoked()):
            del self.keys[min(revoked, key=lambda one: one.revoked_at or 0.0).rules.name]
        self.keys[key.rules.name] = key
        if key.revoked_at is None:
            self._by_digest[key.digest] = key

    def drop(self, key: Key) -> None:
        """Take a key out, as if it had not been added."""
        self.keys.pop(key.rules.name, None)
        self._by_digest.pop(key.digest, None)

    def rotate(self, key: Key, digest: bytes, at: float | None) -> None:
        """Give the key another text; what it may do and what it has used stays. The old text is of no use at once."""
        del self._by_digest[key.digest]
        key.digest, key.rotated_at = digest, at
        self._by_digest[digest] = key

    def check_revocation(self, key: Key, *, configured: bool) -> None:
        """Raise KeyRefused where the other keys would be left without one that manages for ever."""
        others = any(one is not key for one in self._by_digest.values())
        if others and not configured and not [one for one in self._managers() if one is not key]:
            raise KeyRefused(
                f"'{key.rules.name}' is the last key with the scope `manage` that does not expire. Add another one, or "
                "revoke the others first.",
                param="name",
            )

    def revoke(self, key: Key, at: float) -> None:
        """End a key at once."""
        key.revoked_at = at
        self._by_digest.pop(key.digest, None)

    def _managers(self) -> list[Key]:
        return [one for one in self._by_digest.values() if _lasts(one.rules)]

    def _revoked(self) -> list[Key]:
        return [one for one in self.keys.values() if one.revoked_at is not None]


def _lasts(rules: KeyRules) -> bool:
    """Return whether somebody can manage with the key for ever."""
    return Scope.MANAGE in rules.scopes and rules.expires_at is None


def matches(pattern: str, text: str) -> bool:
    """Return whether a text fits a pattern, in which `*` stands for any text; case counts. In linear steps."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *middle, last = others
    at = len(first)
    if not text.startswith(first):
        return False
    for part in middle:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return text.endswith(last) and len(text) - len(last) >= at


@lru_cache(maxsize=4096)
def _matches_one(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)


def _bucket(size: int | None) -> Bucket | None:
    return None if size is None else Bucket(size)
