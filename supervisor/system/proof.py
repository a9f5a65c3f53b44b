"""The proof by which a daemon shows a client of the same user that it is the state folder's, before it is told a key.

The daemon writes a secret to its endpoint file, which only its owner can read. A client sends a challenge, made anew,
and the daemon answers with its HMAC under the secret. The port is part of it: a program on another port cannot pass on
what the daemon would answer.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

CHALLENGE_HEADER = "x-supervisor-challenge"
PROOF_HEADER = "x-supervisor-proof"
_LONGEST = 128


def new_secret() -> str:
    """Make a secret of 256 random bits, as text."""
    return secrets.token_hex(32)


def new_challenge() -> str:
    """Make a challenge that was never used."""
    return secrets.token_hex(16)


def prove(secret: str, challenge: str, port: int) -> str | None:
    """Return the answer to a challenge by the daemon that listens on `port`; None for a challenge that is too long."""
    if len(challenge) > _LONGEST:
        return None
    message = f"llama-supervisor {port} {challenge}".encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def is_proven(secret: str, challenge: str, port: int, answer: str | None) -> bool:
    """Tell whether that was the answer of somebody who knows the secret."""
    expected = prove(secret, challenge, port)
    return answer is not None and expected is not None and hmac.compare_digest(expected.encode(), answer.encode())
