"""Who has joined, in a file; and the invitations that are open, in memory alone: they end with the gateway."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from supervisor.core.workers.messages import Name
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import read_own

MOST_MEMBERS: Final = 256
MOST_INVITATIONS: Final = 64
_VERSION: Final = 1
_MOST_FILE: Final = 1 << 20


class Member(msgspec.Struct, frozen=True):
    """A worker that may connect. serial: of its certificate, in hexadecimal. joined_at: seconds since 1970.

    server: of a node of a cluster: where its NATS server is; empty: it has none.
    """

    name: Name
    serial: str
    joined_at: float
    server: str = ""


class _File(msgspec.Struct, frozen=True):
    version: int
    members: tuple[Member, ...]


class Members:
    """Those of one daemon. Raises OSError, and ValueError where the file cannot be understood."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._members: dict[str, Member] = {}
        self._invitations: dict[str, float] = {}
        try:
            found = msgspec.json.decode(read_own(file, _MOST_FILE), type=_File)
        except FileNotFoundError:
            return
        if found.version != _VERSION:
            raise ValueError(f"{file} is of version {found.version}, and {_VERSION} is read here")
        self._members = {one.name: one for one in found.members}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def full(self) -> bool:
        """True when no further one is taken."""
        return len(self._members) >= MOST_MEMBERS

    def is_let_in(self, name: str, serial: str) -> bool:
        """Return whether a certificate, which the authority has signed, is still of use."""
        member = self._members.get(name)
        return member is not None and member.serial == serial

    def add(self, member: Member) -> None:
        """Let one in; it is on the disk then."""
        self._write({**self._members, member.name: member})

    def remove(self, name: str) -> bool:
        """Let one in no more, from now on and after a restart; return whether there was one."""
        left = {key: one for key, one in self._members.items() if key != name}
        found = len(left) < len(self._members)
        if found:
            self._write(left)
        return found

    def invite(self, until: float, now: float) -> str:
        """Return the secret of a new invitation. Raises ValueError where too many are open."""
        self._invitations = {digest: end for digest, end in self._invitations.items() if end > now}
        if len(self._invitations) >= MOST_INVITATIONS:
            raise ValueError(f"{MOST_INVITATIONS} invitations are open already; they end by themselves")
        secret = secrets.token_urlsafe(24)
        self._invitations[_digest(secret)] = until
        return secret

    def is_open(self, secret: str, now: float) -> bool:
        """Return whether an invitation is open."""
        return any(hmac.compare_digest(one, _digest(secret)) and end > now for one, end in self._invitations.items())

    def use(self, secret: str) -> None:
        """Close an invitation."""
        self._invitations.pop(_digest(secret), None)

    def _write(self, members: dict[str, Member]) -> None:
        content = msgspec.json.encode(_File(_VERSION, tuple(members.values())))
        atomic_write(self._file, content, durable=True)
        self._members = members


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
