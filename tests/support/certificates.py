"""Certificates for tests, made when they are needed, by an authority of the test's own."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme


class Authority:
    """An authority, and a folder in which it writes."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self.file = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(self, *names: str, into: str = "server", expired: bool = False) -> tuple[Path, Path]:
        """Write a certificate with those that vouch for it, and its key; their paths."""
        ends = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC) if expired else None
        begins = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if expired else None
        issued = self._authority.issue_cert(*names, not_after=ends, not_before=begins)
        cert, key = self._folder / f"{into}.pem", self._folder / f"{into}.key"
        cert.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return cert, key

    def both(self, *names: str, into: str = "client") -> Path:
        """Write a certificate and its key into one file; its path."""
        cert, key = self.issue(*names, into=into)
        together = self._folder / f"{into}-both.pem"
        together.write_bytes(cert.read_bytes() + key.read_bytes())
        return together
