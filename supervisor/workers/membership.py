"""What a worker keeps of the daemon that it has joined: in its state folder, for its owner alone."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from supervisor.system.atomic import atomic_write
from supervisor.system.owned import own_folder, read_own

_MOST: Final = 1 << 20
CHAIN: Final = "worker.pem"
KEY: Final = "worker.key"
"""The files of a worker's certificate and key."""


@dataclass(frozen=True)
class Membership:
    """What a worker has of its daemon.

    Attributes:
        name: its own.
        host, port: where the daemon listens for workers.
        authority: the certificate of the daemon's authority (PEM).
        chain, key: the files of its own certificate and key.
    """

    name: str
    host: str
    port: int
    authority: str
    chain: Path
    key: Path

    def tls(self) -> ssl.SSLContext:
        """Return how the daemon is dialled. Raises OSError where the files are not there or wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the authority signs for one server alone: the daemon's gateway
        context.load_verify_locations(cadata=self.authority)
        context.load_cert_chain(self.chain, self.key)
        return context


class _Kept(msgspec.Struct, frozen=True):
    name: str
    host: str
    port: int
    authority: str


def joined(folder: Path) -> Membership | None:
    """Return what was kept of a daemon; None: this host is no worker. Raises OSError, and ValueError for nonsense."""
    try:
        kept = msgspec.json.decode(read_own(folder / "worker.json", _MOST), type=_Kept)
    except FileNotFoundError:
        return None
    return Membership(kept.name, kept.host, kept.port, kept.authority, folder / CHAIN, folder / KEY)


def keep(folder: Path, member: Membership, key: bytes, certificate: str) -> None:
    """Keep a membership; key and certificate (PEM) go to its files. Raises OSError."""
    own_folder(folder)
    kept = _Kept(member.name, member.host, member.port, member.authority)
    atomic_write(member.key, key)
    atomic_write(member.chain, certificate.encode())
    atomic_write(folder / "worker.json", msgspec.json.encode(kept), durable=True)
