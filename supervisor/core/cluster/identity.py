"""Who a certificate says that its host is: a node by its name and its certificate's number, and perhaps a server.

The number is in it as a name is free again once its node was removed: the next node of that name is another one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SERVER: Final = "server:nats"
"""The further name in the certificate of a host that runs a NATS server: what servers ask of each other."""


class Peer(NamedTuple):
    """A node by its certificate. serial: in hexadecimal, small letters; empty: unknown."""

    name: str
    serial: str

    @property
    def uri(self) -> str:
        """The name in the certificate by which NATS servers know the node."""
        return f"node:{self.name}:{self.serial}"
