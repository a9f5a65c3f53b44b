"""The token by which another host joins as a worker: where to, whose certificates to trust, and a secret of one use."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

_PREFIX: Final = "supw-"
_MOST: Final = 1024  # characters of a token


class JoinToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an invitation says.

    Attributes:
        host, port: where the daemon listens for workers.
        authority: SHA-256 of the certificate authority's certificate (DER), in hexadecimal.
        secret: of one use.
    """

    host: str
    port: int
    authority: str
    secret: str

    def __post_init__(self) -> None:
        if not (0 < len(self.host) <= 255 and 0 < self.port < 65536):
            raise ValueError("no address")
        if len(self.authority) != 64 or not 0 < len(self.secret) <= 128:
            raise ValueError("no fingerprint, or no secret")


class BadToken(ValueError):
    """The text is no join token."""


def encode(token: JoinToken) -> str:
    """Return the token as one word."""
    return _PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def decode(text: str) -> JoinToken:
    """Read a token. Raises BadToken."""
    word = text.strip()
    if not word.startswith(_PREFIX) or len(word) > _MOST:
        raise BadToken
    packed = word.removeprefix(_PREFIX)
    try:
        found = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        return msgspec.json.decode(found, type=JoinToken)
    except (ValueError, binascii.Error):
        raise BadToken from None
