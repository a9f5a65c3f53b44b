"""Make this host a part of a cluster: what is kept of it is written, and its daemon finds it at its next start."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from supervisor.cluster.joining import begin, join
from supervisor.cluster.kept import Membership, Server, membership
from supervisor.core.workers.token import JoinToken
from supervisor.errors import ClusterJoined, ClusterRefused
from supervisor.system.paths import Places, places


def begin_here(name: str, peers: tuple[str, int], store_port: int, others: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Begin a cluster; return this host's part in it. Raises ClusterJoined, ClusterRefused.

    others: where further nodes will run NATS servers.
    """
    where = _free()
    _check_address(peers[0])
    try:
        servers = [Server(*one) for one in ((peers[0], store_port), *others)]
        return _shown(begin(where.cluster, name, peers, servers))
    except OSError as error:
        raise _unwritten(where, error) from None


def join_here(token: JoinToken, name: str, peers: tuple[str, int], store_port: int) -> dict[str, Any]:
    """Join a cluster; return this host's part in it. Raises ClusterJoined, ClusterRefused."""
    where = _free()
    _check_address(peers[0])
    try:
        return _shown(join(where.cluster, token, name, peers, store_port))
    except OSError as error:
        raise _unwritten(where, error) from None


def _free() -> Places:
    """Return the places, if this host is in no cluster."""
    where = places(os.environ)
    try:
        known = membership(where.cluster)
    except (OSError, ValueError) as error:
        raise ClusterRefused(
            f"What {where.cluster} keeps of a cluster cannot be read ({error}). Remove that folder and begin anew."
        ) from None
    if known is not None:
        raise ClusterJoined(
            f"This host is the node '{known.name}' of a cluster already. `supervisor cluster leave` takes it out; "
            f"where its daemon cannot run any more, remove {where.cluster}."
        )
    return where


def _check_address(host: str) -> None:
    """Raise ClusterRefused for a name that is no address of this host."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ClusterRefused(f"--host {host} is no address: {error.strerror}.") from None
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as one:
                one.bind((address[0], 0))
        except OSError:
            continue
        return
    raise ClusterRefused(
        f"--host {host} is no address of this host. Give the one at which other nodes reach it, such as 10.0.0.2."
    )


def _shown(found: Membership) -> dict[str, Any]:
    return {"name": found.name, "host": found.host, "port": found.port, "serves": found.serves is not None}


def _unwritten(where: Places, error: OSError) -> ClusterRefused:
    return ClusterRefused(f"{where.cluster} cannot be written: {error.strerror}.")
