"""The ports of a node, where nobody says otherwise."""

from __future__ import annotations

from typing import Final

PEER_PORT: Final = 8586
"""Where other nodes reach a node."""

STORE_PORT: Final = 8587
"""Where nodes reach a NATS server; other servers do at the next one."""
